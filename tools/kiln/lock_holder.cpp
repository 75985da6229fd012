#include "lock_holder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "base/fd.hpp"
#include "cache/gate.hpp"

namespace kiln::cli {

int hold_lock(const char* path) noexcept try {
  const base::Fd fd(::open(path, O_RDWR | O_CLOEXEC));
  if (!fd) return 1;
  const auto lock = cache::RangeLock::acquire(fd.get(), cache::kGateOffset, cache::RangeLock::Mode::exclusive,
                                              base::Deadline::after(std::chrono::seconds(2)));
  if (!lock || ::write(STDOUT_FILENO, "+", 1) != 1) return 1;
  char byte;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
} catch (...) {
  return 1;
}

}  // namespace kiln::cli
