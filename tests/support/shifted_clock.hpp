// See shifted_clock.cpp.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

/// The wall clock of this process, and of what it forks, from now on. Thread-safe.
extern "C" void kiln_shift_clock(std::int64_t seconds);

namespace kiln::testing {

/// That of processes that preload the library with SHIFTED_CLOCK=`file`, from now on.
inline void shift_clocks_of(const std::string& file, std::int64_t seconds) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (::pwrite(fd, &seconds, sizeof seconds, 0) != sizeof seconds) std::abort();
  ::close(fd);
}

}  // namespace kiln::testing
