// Moved to "attention/tile.cuh". This name is kept for one release.
#pragma once
#include "attention/tile.cuh"
