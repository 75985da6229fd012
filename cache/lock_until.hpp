// A mutex with a deadline on the monotonic clock.
#pragma once

#include <mutex>

#include "base/deadline.hpp"

namespace kiln::cache {

/// Not owning the mutex when the deadline passed first. Polled: gcc 12's thread sanitizer does not know
/// pthread_mutex_clocklock, which std::timed_mutex waits with, and waits on the wall clock end when somebody
/// sets it.
inline std::unique_lock<std::mutex> lock_until(std::mutex& mutex, base::Deadline deadline) {
  std::unique_lock lock(mutex, std::defer_lock);
  base::poll_until(deadline, [&lock] { return lock.try_lock(); });
  return lock;
}

}  // namespace kiln::cache
