#pragma once
#include <cuda_runtime_api.h>

#define checkCudaErrors(...)
#define getLastCudaError(...)
#define sdkCheckErrorsCL(...)
