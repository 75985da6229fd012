#pragma once
#include <torch/stub.h>
