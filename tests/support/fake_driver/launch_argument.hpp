// An argument of a launch on the fake driver, for preloaded kernels that compute.
#pragma once

#include <cstring>

#include "kiln_fake.h"

/// Argument `i` of the launch; zero when the launch has no argument of this size there.
template <class T>
T argument(const kiln_fake_launch& launch, unsigned i) {
  T out{};
  if (i < launch.argument_count && launch.argument_sizes[i] == sizeof(T))
    std::memcpy(&out, launch.arguments[i], sizeof out);
  return out;
}
