// Moved to "attention/decode/rows.cuh". This name is kept for one release.
#pragma once
#include "attention/decode/rows.cuh"
