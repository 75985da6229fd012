// Moved to "attention/work_list.cuh". This name is kept for one release.
#pragma once
#include "attention/work_list.cuh"
