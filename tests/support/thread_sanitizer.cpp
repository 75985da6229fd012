// What gcc 12's thread sanitizer must be told about the C++ library, which is not built with it.
#ifdef __SANITIZE_THREAD__

#include <pthread.h>

#include <ctime>

/// The counts of exceptions and of their texts are atomic, inside libstdc++: that the last owner frees them
/// after the others have read them is not seen.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:std::__exception_ptr::exception_ptr::_M_release\n";
}

/// condition_variable::wait_for and wait_until call this for the monotonic clock. The sanitizer does not know
/// it, sees neither that the mutex is let go nor that it is taken again, and finds races that are none. So it
/// goes over a call that it knows.
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
