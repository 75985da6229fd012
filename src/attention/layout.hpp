// Where things are in a plan: the host's side of templates/attention/work_list.cuh. All in words of 4 bytes.
#pragma once

#include <cstdint>

namespace kiln::attention {

struct Header {
  std::int32_t made_for, workers, kv_heads, window_left;  ///< what the launch is compared with
  std::int32_t requests, tokens, items, slots, requests_at;
  std::int32_t busy;   ///< workers that have kv tokens (of tiles together, only the first is looked at)
  std::int32_t ticks;  ///< the kernel's own
  std::int32_t reserved[5];
};

struct Item {
  std::int32_t request, kv_head, first_row, qo_begin, qo_len, kv_len, kv_base, kv_begin, kv_end;
  std::int32_t first_slot, part, parts;
};

/// What words and packed rows can count.
inline constexpr std::int64_t kMost = 0x7fffffff;
/// Tokens of a request, of q and of kv: kernels add two of them in 32 bits.
inline constexpr std::int64_t kMostTokens = (1 << 30) - 1;
/// REQUIRES: it fits, as what was checked does.
constexpr std::int32_t narrow(std::int64_t v) { return static_cast<std::int32_t>(v); }

inline constexpr std::int64_t kHeaderWords = 16, kItemWords = 12, kRequestWords = 4;
static_assert(sizeof(Header) == 4 * kHeaderWords && sizeof(Item) == 4 * kItemWords);

/// Of where the workers' items begin, and of the counters: whole 16 bytes, so that items are aligned.
constexpr std::int64_t table_words(std::int64_t workers) { return (workers + 1 + 3) / 4 * 4; }
constexpr std::int64_t workers_at() { return kHeaderWords; }
constexpr std::int64_t counters_at(std::int64_t workers) { return kHeaderWords + table_words(workers); }
/// A copy of each worker's first item: found without the table.
constexpr std::int64_t first_items_at(std::int64_t workers) {
  return kHeaderWords + 2 * table_words(workers);
}
constexpr std::int64_t items_at(std::int64_t workers) {
  return first_items_at(workers) + workers * kItemWords;
}

/// What a kernel fixes, in a word: a plan is for kernels that have the same one.
constexpr std::int32_t made_for(std::int64_t tile_rows, std::int64_t tile_kv, std::int64_t group, bool causal,
                                bool tiles_together = false) {
  const auto mixed =
      ((static_cast<std::uint32_t>(tile_rows) * 65599 + static_cast<std::uint32_t>(tile_kv)) * 65599 +
       static_cast<std::uint32_t>(group)) *
      2;
  const auto word = (mixed + (causal ? 1u : 0u)) ^ 0x4b415450u;
  return static_cast<std::int32_t>(tiles_together ? ~word : word);
}

}  // namespace kiln::attention
