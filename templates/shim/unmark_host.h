// Name this file in a manifest's `preinclude`, after nvcc.h, if a source marks functions as __host__ alone.
// NVRTC refuses such functions. Without the mark they become device code through default_device. The file
// does not suit a source that overloads a function by its marks.
#pragma once
#include <cuda_runtime_api.h>
#undef __host__
#define __host__
