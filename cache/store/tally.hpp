// The tally holds the store's lifetime counters: DIR/v1/counters, numbers that every process adds to. Whoever
// adds decides what an index counts. A fault costs counts and nothing else, since people alone read them.
//
// The file, version 1, little-endian, 528 bytes:
//   u64 magic "kilntly1"
//   u64 values[64]
//   u64 XXH3-64 of what precedes
// Anything else counts as zeros, and is overwritten by the next add. Not synced: a power loss may lose the
// last counts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/lock/fd_pool.hpp"
#include "cache/lock/gate.hpp"

namespace kiln::cache {

inline constexpr std::size_t kTallyValues = 64;

/// Thread-safe; safe between processes and across a fork.
class Tally {
 public:
  /// `place` is DIR/v1. Opens nothing.
  explicit Tally(const std::string& place);
  /// values[i] += deltas[i], for at most kTallyValues of them. False when it could not be counted: another
  /// process held the file for 20 ms, it cannot be written, the disk is full. Nothing is added then.
  bool add(std::span<const std::uint64_t> deltas) noexcept;
  /// kTallyValues numbers; zeros when there is no file or it is damaged. Never throws but for memory.
  std::vector<std::uint64_t> read();

 private:
  FdPool writing_, reading_;
};

}  // namespace kiln::cache
