// Contents and deadlines of the tests of blobs.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "base/deadline.hpp"

namespace kiln::testing {

inline base::Deadline soon() { return base::Deadline::after(std::chrono::seconds(60)); }

/// Bytes that do not compress.
inline std::string noise(std::size_t size) {
  std::string out;
  std::mt19937_64 random(7);
  for (out.reserve(size + 8); out.size() < size;) {
    const std::uint64_t word = random();
    out.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  out.resize(size);
  return out;
}

}  // namespace kiln::testing
