// Moved to "attention/decode/queries.cuh". This name is kept for one release.
#pragma once
#include "attention/decode/queries.cuh"
