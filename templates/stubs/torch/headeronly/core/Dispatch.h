#pragma once
#include <torch/headeronly/core/ScalarType.h>

#define THO_DISPATCH_SWITCH(...)
#define THO_DISPATCH_CASE(...)
#define THO_PRIVATE_CASE_TYPE_USING_HINT(...)
