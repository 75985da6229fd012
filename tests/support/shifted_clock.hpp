// See shifted_clock.cpp.
#pragma once

#include <cstdint>

/// The wall clock of this process, and of what it forks, from now on. Thread-safe.
extern "C" void kiln_shift_clock(std::int64_t seconds);
