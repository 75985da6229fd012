// The use log remembers which entries this process has used since it last wrote uses into the store, and
// which entries it holds.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/deadline.hpp"
#include "kiln/digest.hpp"

namespace kiln::cache {

struct KeyHash {
  std::size_t operator()(const Key& key) const noexcept;
};

/// Thread-safe. Bounded: keys that do not fit are not remembered.
class UseLog {
 public:
  /// Notes a use. Returns true for the first use after the log was empty.
  bool note(const Key& key) noexcept;
  /// Every key that was ever noted.
  std::vector<Key> held() const;
  /// Returns whether nothing was noted since the last `take`.
  bool empty() const;
  /// Returns the used keys with the number of their uses, and empties the log. Once in `refresh`
  /// every key that was ever noted is among them, because a process that holds a kernel uses it
  /// without asking the store.
  std::vector<std::pair<Key, std::uint64_t>> take(base::Clock::duration refresh);

 private:
  static constexpr std::size_t kLimit = 1 << 17;
  mutable std::mutex mutex_;
  std::unordered_map<Key, std::uint64_t, KeyHash> used_;
  std::unordered_map<Key, bool, KeyHash> held_;
  base::Clock::time_point refreshed_ = base::Clock::now();
};

}  // namespace kiln::cache
