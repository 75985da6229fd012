// Moved to "attention/decode/join.cuh". This name is kept for one release.
#pragma once
#include "attention/decode/join.cuh"
