// Moved to "attention/state.cuh". This name is kept for one release.
#pragma once
#include "attention/state.cuh"
