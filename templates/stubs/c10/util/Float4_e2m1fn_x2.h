#pragma once
#include <torch/headeronly/util/Float4_e2m1fn_x2.h>
