// Moved to "attention/decode/pace.cuh". This name is kept for one release.
#pragma once
#include "attention/decode/pace.cuh"
