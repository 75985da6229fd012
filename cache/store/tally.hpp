// The tally holds the store's lifetime counters: DIR/v1/counters, numbers that every process adds to. Another
// name holds other counters: each space of blobs has its own (runtime/blob/counters.hpp).
// The code that adds decides what an index counts. A fault costs counts and nothing else, since
// people alone read them.
//
// The file, version 1, little-endian, 528 bytes:
//
//     u64 magic "kilntly1"
//     u64 values[64]
//     u64 XXH3-64 of what precedes
//
// A file with other contents counts as zeros, and is overwritten by the next add. Nothing is synced: a power
// loss may lose the last counts.
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
  /// `place` is DIR/v1, and `name` the file's. Opens nothing.
  explicit Tally(const std::string& place, const std::string& name = "counters");
  /// Adds `deltas`, at most kTallyValues of them, to the values. Returns false, and adds nothing, when
  /// another process held the file for 20 ms, when it cannot be written, or when the disk is full.
  bool add(std::span<const std::uint64_t> deltas) noexcept;
  /// Returns kTallyValues numbers, which are zeros when the file is absent or damaged. Throws only
  /// for lack of memory.
  std::vector<std::uint64_t> read();

 private:
  FdPool writing_, reading_;
};

}  // namespace kiln::cache
