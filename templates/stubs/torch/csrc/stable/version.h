#pragma once
#include <torch/version.h>
