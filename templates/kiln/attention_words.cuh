// Moved to "attention/words.cuh". This name is kept for one release.
#pragma once
#include "attention/words.cuh"
