// Corrections for gcc 12's thread sanitizer: it does not see into the C++ library, which is built without it.
#ifdef __SANITIZE_THREAD__

#include <pthread.h>

#include <ctime>

/// Inside libstdc++ the reference counts of exceptions and of their texts are atomic. The sanitizer does not
/// see that the last owner frees them after the other owners have read them.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:std::__exception_ptr::exception_ptr::_M_release\n";
}

/// condition_variable::wait_for and wait_until call this for the monotonic clock. The sanitizer does not
/// intercept it, so it does not see the mutex released and taken again, and reports false races.
/// This version calls a function that the sanitizer intercepts.
extern "C" __attribute__((visibility("default"))) int pthread_cond_clockwait(pthread_cond_t* condition,
                                                                             pthread_mutex_t* mutex,
                                                                             clockid_t clock,
                                                                             const timespec* until) {
  timespec now{}, real{};
  ::clock_gettime(clock, &now);
  ::clock_gettime(CLOCK_REALTIME, &real);
  constexpr long long kSecond = 1'000'000'000;
  const long long left = (until->tv_sec - now.tv_sec) * kSecond + (until->tv_nsec - now.tv_nsec);
  const long long at = real.tv_sec * kSecond + real.tv_nsec + (left > 0 ? left : 0);
  real = {static_cast<time_t>(at / kSecond), static_cast<long>(at % kSecond)};
  return ::pthread_cond_timedwait(condition, mutex, &real);
}

#endif
