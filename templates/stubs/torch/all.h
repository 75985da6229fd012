#pragma once
#include <torch/stub.h>

#include <tuple>
