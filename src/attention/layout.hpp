// The positions of the parts of a work list, for the host that writes it. The words themselves are declared
// in templates/attention/words.h, which the device compiles, too.
#pragma once

#include <algorithm>
#include <cstdint>

#include "templates/attention/words.h"

namespace kiln::attention {

using Header = AttentionHeader;
using Item = AttentionItem;

/// The largest i32: words, tiles, page sizes and packed rows go up to it.
inline constexpr std::int64_t kMost = 0x7fffffff;
/// The most tokens of a request, of q and of kv each: kernels add two such numbers in 32 bits.
inline constexpr std::int64_t kMostTokens = (1 << 30) - 1;
/// REQUIRES: the value fits 32 bits, as every checked value does.
constexpr std::int32_t narrow(std::int64_t v) { return static_cast<std::int32_t>(v); }

inline constexpr std::int64_t kHeaderWords = AttentionWords::HEADER, kItemWords = AttentionWords::ITEM,
                              kRequestWords = AttentionWords::REQUEST;

/// Words of the table of each worker's first item. The counters take as many.
constexpr std::int64_t table_words(std::int64_t workers) { return AttentionWords::table(workers); }
constexpr std::int64_t workers_at() { return kHeaderWords; }
constexpr std::int64_t counters_at(std::int64_t workers) { return AttentionWords::counters_at(workers); }
constexpr std::int64_t first_items_at(std::int64_t workers) {
  return AttentionWords::first_items_at(workers);
}
constexpr std::int64_t items_at(std::int64_t workers) {
  return first_items_at(workers) + workers * kItemWords;
}

/// The part of a kernel's shape that a work list must match, and the right end of its windows, mixed into one word. REQUIRES: a
/// checked shape.
constexpr std::int32_t made_for(std::int64_t tile_rows, std::int64_t tile_kv, std::int64_t group, bool causal,
                                bool tiles_together = false, std::int64_t window_right = -1) {
  return static_cast<std::int32_t>(attention_made_for(
      static_cast<std::uint32_t>(tile_rows), static_cast<std::uint32_t>(tile_kv),
      static_cast<std::uint32_t>(group), causal, tiles_together, narrow(std::min(window_right, kMost))));
}

}  // namespace kiln::attention
