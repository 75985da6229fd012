// The limit that a test sets on how long something may take.
#pragma once

#include <cstdlib>
#include <string_view>

namespace kiln {

/// `limit` where KILN_TEST_TIMES is "strict" (an idle machine, as in a nightly run), else twenty times of it. A
/// verdict of CI must not depend on how busy its machine is: there the limit only tells what ends from what
/// hangs. `limit` is a duration or a number.
template <class T>
T at_most(T limit) {
  const char* times = std::getenv("KILN_TEST_TIMES");
  return times != nullptr && std::string_view(times) == "strict" ? limit : limit * 20;
}

}  // namespace kiln
