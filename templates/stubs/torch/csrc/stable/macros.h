#pragma once
#include <torch/stub.h>

#define STD_CUDA_CHECK(...)
#define STD_CUDA_KERNEL_LAUNCH_CHECK()
