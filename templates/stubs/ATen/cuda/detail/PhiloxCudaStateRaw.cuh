#pragma once
#include <ATen/cuda/PhiloxCudaState.h>
