#pragma once
#include <torch/headeronly/util/Float8_e8m0fnu.h>
