// For `preinclude`, after nvcc.h, where a source marks functions __host__ alone, which NVRTC refuses:
// unmarked, they are device code by default_device. Not where a source overloads a function by its marks.
#pragma once
#include <cuda_runtime_api.h>
#undef __host__
#define __host__
