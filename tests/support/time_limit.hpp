// A time limit for tests. It is wide where the machine may be busy.
#pragma once

#include <cstdlib>
#include <string_view>

namespace kiln {

/// `limit` where KILN_TEST_TIMES is "strict" (an idle machine, as in a nightly run), otherwise 20 times
/// `limit`. `limit` is a duration or a number.
/// A verdict of CI must not depend on how busy its machine is. There the
/// limit only tells a slow run from a hang.
template <class T>
T at_most(T limit) {
  const char* times = std::getenv("KILN_TEST_TIMES");
  return times != nullptr && std::string_view(times) == "strict" ? limit : limit * 20;
}

}  // namespace kiln
