// Tests that try every case at night (tools/nightly.sh) and a part of the cases in CI, which has ten minutes.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

namespace kiln {

/// True in the nightly run, which sets KILN_TEST_NIGHTLY.
inline bool nightly() { return std::getenv("KILN_TEST_NIGHTLY") != nullptr; }

/// How many rounds or cases a test tries.
inline int ci_or_night(int in_ci, int at_night) { return nightly() ? at_night : in_ci; }

}  // namespace kiln

/// Skips the rest of this test unless this is the nightly run.
#define KILN_NIGHTLY_ONLY() \
  if (!::kiln::nightly()) GTEST_SKIP() << "runs at night: tools/nightly.sh, or KILN_TEST_NIGHTLY=1"
