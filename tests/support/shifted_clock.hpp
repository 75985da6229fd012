// See shifted_clock.cpp.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

/// From now on shifts the wall clock of this process and of children that it forks. Thread-safe.
extern "C" void kiln_shift_clock(std::int64_t seconds);

namespace kiln::testing {

/// From now on shifts the clock of processes that preload the library with SHIFTED_CLOCK=`file`.
inline void shift_clocks_of(const std::string& file, std::int64_t seconds) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (::pwrite(fd, &seconds, sizeof seconds, 0) != sizeof seconds) std::abort();
  ::close(fd);
}

}  // namespace kiln::testing
