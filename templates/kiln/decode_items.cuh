// Moved to "attention/decode/items.cuh". This name is kept for one release.
#pragma once
#include "attention/decode/items.cuh"
