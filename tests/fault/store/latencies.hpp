// A histogram of durations that processes share. It is exact to within an eighth.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>

namespace kiln::cache::test {

/// Thread-safe. May be constructed in shared memory.
class Latencies {
 public:
  void add(std::chrono::nanoseconds took) noexcept {
    const auto us = static_cast<std::uint64_t>(took.count() / 1000);
    ++counts_[bucket(us)];
    for (std::uint64_t seen = longest_; us > seen && !longest_.compare_exchange_weak(seen, us);) {
    }
  }
  std::uint64_t count() const noexcept {
    std::uint64_t out = 0;
    for (const auto& each : counts_) out += each;
    return out;
  }
  /// At most 1 in `share` calls took longer than this many microseconds: 2
  /// is the median, 100 the 99th percentile.
  std::uint64_t all_but_one_in(std::uint64_t share) const noexcept {
    std::uint64_t left = count() / share;
    for (std::size_t i = kBuckets; i-- > 0;) {
      if (counts_[i] > left) return upper_end(i);
      left -= counts_[i];
    }
    return 0;
  }
  std::uint64_t longest_us() const noexcept { return longest_; }

 private:
  static constexpr std::size_t kBuckets = 8 * 40;
  // Below 8 us each value has a bucket. Above, each power of two has eight buckets.
  static std::size_t bucket(std::uint64_t us) noexcept {
    if (us < 8) return us;
    const auto power = static_cast<std::size_t>(std::bit_width(us)) - 4;
    return std::min(kBuckets - 1, 8 * (power + 1) + ((us >> power) & 7));
  }
  static std::uint64_t upper_end(std::size_t bucket) noexcept {
    if (bucket < 8) return bucket;
    return (std::uint64_t{9} + bucket % 8) << (bucket / 8 - 1);
  }
  std::atomic<std::uint64_t> counts_[kBuckets];
  std::atomic<std::uint64_t> longest_;
};

}  // namespace kiln::cache::test
