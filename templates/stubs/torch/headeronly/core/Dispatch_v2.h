#pragma once
#include <torch/headeronly/core/Dispatch.h>

#define THO_DISPATCH_V2(...)
