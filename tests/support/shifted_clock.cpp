// A wall clock that jumps. It shifts time, gettimeofday and clock_gettime of the
// real-time clocks; the monotonic clocks stay.
// The shift is the argument of the last kiln_shift_clock call plus the number in the file that SHIFTED_CLOCK
// names. The library is linked in front of libc, or preloaded.
#include "tests/support/shifted_clock.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace {
std::atomic<std::int64_t> shift{0};

/// The shift in the file that SHIFTED_CLOCK names, or `shift` when there is no such file.
const std::atomic<std::int64_t>* find_shared() noexcept {
  const char* path = std::getenv("SHIFTED_CLOCK");
  const int fd = path ? ::open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return &shift;
  const void* map = ::mmap(nullptr, sizeof shift, PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  if (map == MAP_FAILED) std::abort();
  return static_cast<const std::atomic<std::int64_t>*>(map);
}
std::int64_t shift_now() noexcept {
  static const std::atomic<std::int64_t>* const shared = find_shared();
  return shared == &shift ? shift.load() : shift + *shared;
}

bool is_wall_clock(clockid_t clock) noexcept {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}
}  // namespace

#define KILN_CLOCK_API __attribute__((visibility("default")))

extern "C" {
KILN_CLOCK_API void kiln_shift_clock(std::int64_t seconds) { shift = seconds; }

KILN_CLOCK_API int clock_gettime(clockid_t clock, timespec* out) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, out));
  if (result == 0 && is_wall_clock(clock)) out->tv_sec += shift_now();
  return result;
}
KILN_CLOCK_API int gettimeofday(timeval* out, void*) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  *out = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}
KILN_CLOCK_API time_t time(time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
}
