#pragma once
#include <torch/stub.h>

#define STD_TORCH_CHECK_NOT_IMPLEMENTED(...)
