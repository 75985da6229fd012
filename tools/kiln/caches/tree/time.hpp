// Times of files as nanoseconds since 1970.
#pragma once

#include <cstdint>
#include <ctime>
#include <limits>

namespace kiln::cli {

/// A time that does not fit, before 1677 or after 2262, becomes the nearest one that does.
inline std::int64_t ns_of(const timespec& time) noexcept {
  std::int64_t out = 0;
  if (__builtin_mul_overflow(std::int64_t{time.tv_sec}, std::int64_t{1'000'000'000}, &out) ||
      __builtin_add_overflow(out, std::int64_t{time.tv_nsec}, &out))
    return time.tv_sec < 0 ? std::numeric_limits<std::int64_t>::min()
                           : std::numeric_limits<std::int64_t>::max();
  return out;
}

/// The fraction of a second is never negative, also before 1970.
inline timespec timespec_of(std::int64_t ns) noexcept {
  timespec out{ns / 1'000'000'000, ns % 1'000'000'000};
  if (out.tv_nsec < 0) --out.tv_sec, out.tv_nsec += 1'000'000'000;
  return out;
}

}  // namespace kiln::cli
