// Moved to "attention/prefill/tile.cuh". This name is kept for one release.
#pragma once
#include "attention/prefill/tile.cuh"
