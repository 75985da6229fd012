// Tells tests that they run under a sanitizer, which has memory, threads and system calls of its own.
#pragma once

namespace kiln::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace kiln::testing

/// For tests that count what the process does, or check how it dies. The report contains `what`.
#define KILN_SKIP_SANITIZED(what) \
  if (kiln::testing::kSanitized) GTEST_SKIP() << "a sanitizer has " what " of its own"
