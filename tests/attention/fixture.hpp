// A plan, read as a kernel reads it, and a slow, independent statement of which kv tokens a row sees.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "attention/device_words.hpp"
#include "attention/plan.hpp"

namespace kiln::attention::test {

/// Random numbers of a seed.
class Draws {
 public:
  explicit Draws(unsigned seed) : random_(seed) {}
  std::int64_t operator()(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  bool one_in(int n) { return (*this)(1, n) == 1; }
  template <std::size_t N>
  std::int64_t of(const std::int64_t (&values)[N]) {
    return values[static_cast<std::size_t>((*this)(0, N - 1))];
  }

 private:
  std::mt19937_64 random_;
};

struct PlannedItem {
  std::int32_t request, kv_head, first_row, qo_begin, qo_len, kv_len, kv_base, kv_begin, kv_end;
  std::int32_t first_slot, part, parts;
  bool operator==(const PlannedItem&) const = default;
};

/// Reads the words of a plan as templates/attention/work_list.cuh documents them, without the host's structs.
class Planned {
 public:
  static constexpr std::int32_t kUntouched = 0x7eadbeef;

  Planned(const KernelShape& shape, const Limits& limits, const Lengths& lengths)
      : shape_(shape),
        limits_(limits),
        window_left_(lengths.window_left),
        window_right_(lengths.window_right),
        words_(static_cast<std::size_t>(work_list_words(shape, limits)) + 8, kUntouched) {
    summary = write_work_list(shape, limits, lengths, std::span(words_).first(words_.size() - 8));
  }

  std::int32_t word(std::int64_t i) const { return words_.at(static_cast<std::size_t>(i)); }
  std::int64_t table() const { return (limits_.workers + 4) / 4 * 4; }
  std::int64_t begin(std::int64_t worker) const { return word(16 + worker); }
  std::int32_t counter(std::int64_t i) const { return word(16 + table() + i); }
  std::int64_t first_items() const { return 16 + 2 * table(); }
  PlannedItem first_item(std::int64_t worker) const { return item_at(first_items() + 12 * worker); }
  PlannedItem item(std::int64_t i) const { return item_at(first_items() + 12 * (limits_.workers + i)); }
  /// Every tile and every part. An item of several tiles is split into tiles, as a kernel does it.
  std::vector<PlannedItem> items() const { return items_between(0, summary.items); }
  std::vector<PlannedItem> items_of(std::int64_t worker) const {
    return items_between(begin(worker), begin(worker + 1));
  }
  Request request(std::int64_t i) const {
    const std::int64_t at = word(8) + 4 * i;
    return {word(at), word(at + 1), word(at + 2), word(at + 3)};
  }
  std::int64_t size() const { return static_cast<std::int64_t>(words_.size()); }

  Summary summary;

 private:
  PlannedItem item_at(std::int64_t first) const {
    const auto at = [&](std::int64_t field) { return word(first + field); };
    return {at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9), at(10), at(11)};
  }

  std::vector<PlannedItem> items_between(std::int64_t begin, std::int64_t end) const {
    std::vector<PlannedItem> out;
    for (std::int64_t i = begin; i < end; ++i) {
      auto tile = std::bit_cast<AttentionItem>(item(i));
      const std::int32_t tiles = tile.tiles();
      EXPECT_TRUE(tiles == 1 || (tiles > 1 && shape_.tiles_together));
      for (std::int32_t nth = 0; nth < tiles; ++nth) {
        if (nth > 0) go_on(tile);
        out.push_back(std::bit_cast<PlannedItem>(tile));
        if (tile.whole()) out.back().first_slot = -1;
      }
    }
    return out;
  }
  void go_on(AttentionItem& tile) const {
    const auto next = [&](auto causal, auto window) {
      go_to_next_tile<causal, window>(tile, static_cast<int>(shape_.tile_rows),
                                      static_cast<int>(shape_.tile_kv), static_cast<int>(shape_.group),
                                      static_cast<int>(window_left_), static_cast<int>(window_right_));
    };
    using std::true_type, std::false_type;
    if (shape_.causal)
      shape_.window ? next(true_type(), true_type()) : next(true_type(), false_type());
    else
      shape_.window ? next(false_type(), true_type()) : next(false_type(), false_type());
  }

  const KernelShape shape_;
  const Limits limits_;
  const std::int64_t window_left_, window_right_;
  std::vector<std::int32_t> words_;
};

/// True when token t of q sees kv token j, by the kernels' contract.
inline bool sees(const KernelShape& shape, std::int64_t window_left, std::int64_t window_right,
                 const Request& r, std::int64_t t, std::int64_t j) {
  if (j < 0 || j >= r.kv_len) return false;
  if (shape.causal && !(j <= t + r.kv_len - r.qo_len)) return false;
  if (shape.window && window_left >= 0 && !(j + r.qo_len + window_left >= r.kv_len + t)) return false;
  if (shape.window && window_right >= 0 && !(j + r.qo_len <= r.kv_len + t + window_right)) return false;
  return true;
}

/// The number of workers of a team.
inline std::int64_t team_of(const KernelShape& shape, const Limits& limits) {
  std::int64_t out = 1;
  for (std::int64_t h = 1; shape.heads_together && h <= limits.kv_heads; ++h)
    if (limits.kv_heads % h == 0 && 32 * (limits.workers / h * h) >= 31 * limits.workers) out = h;
  return out;
}

/// The kv blocks of an item, at least one.
inline std::int64_t kv_blocks_of(const KernelShape& shape, const PlannedItem& item) {
  const std::int64_t tokens = item.kv_end - item.kv_begin;
  return tokens > 0 ? (tokens + shape.tile_kv - 1) / shape.tile_kv : 1;
}

}  // namespace kiln::attention::test
