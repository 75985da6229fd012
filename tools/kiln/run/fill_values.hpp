// Inputs that are generated on the host. These are index arrays, which a kernel could not use if they were
// only random. A seed gives equal values on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kiln/dtype.hpp"

namespace kiln::cli {

/// SplitMix64 (Steele, Lea, Flood 2014). Its state is the seed.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  /// A number from 0 to n - 1, uniformly distributed. REQUIRES: n > 0.
  std::uint64_t below(std::uint64_t n);

 private:
  std::uint64_t state_;
};

/// The numbers from 0 to n - 1 in random order (Fisher and Yates).
std::vector<std::int64_t> random_permutation(std::uint64_t n, std::uint64_t seed);
/// `entries` values that ascend from 0 to `total`, as starts of runs of random lengths. Of four runs or more
/// at least one is empty. REQUIRES: total >= 0; entries > 1, or total is 0.
std::vector<std::int64_t> random_offsets(std::uint64_t entries, std::int64_t total, std::uint64_t seed);
/// Numbers from low to high, both included. REQUIRES: low <= high.
std::vector<std::int64_t> random_integers(std::uint64_t n, std::int64_t low, std::int64_t high,
                                          std::uint64_t seed);

/// True for i32, u32, i64 and u64.
bool holds_indices(Dtype dtype) noexcept;
/// The bytes of `values` as elements of `dtype`. Throws Error(invalid_value) for a dtype that holds no
/// indices, and for a value that does not fit. `what` begins the message.
std::string elements_of(std::span<const std::int64_t> values, Dtype dtype, const std::string& what);

}  // namespace kiln::cli
