// The line of all tiles, cut into equal shares: walks along it and writes what each worker has of it.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/layout.hpp"
#include "attention/plan.hpp"

namespace kiln::attention {

class Line {
 public:
  /// `total` is what all tiles together take of the line; `out` the plan's first word. The shape and the
  /// limits outlive it.
  Line(const KernelShape& shape, const Limits& limits, std::int64_t total, std::int32_t* out);

  /// The next tile, whole, without slots: with its request, lengths, rows and kv tokens. It is given back as
  /// it was.
  void add(Item& tile, std::int64_t units) {
    const std::int64_t end = position_ + units + shape_.tile_cost;
    if (end <= cut_)
      put(tile);
    else
      split(tile, units, end);
    position_ = end;
  }
  /// Behind the last tile.
  void finish();

  std::int64_t items() const { return items_written_; }
  std::int64_t slots() const { return slots_; }
  std::int64_t workers() const { return workers_; }      ///< that have a share
  std::int64_t min_units() const { return min_units_; }  ///< of a part of this line

 private:
  struct Cut {
    std::int64_t worker, at;  ///< the worker that begins here, and the units of the tile before it
  };

  void next_cut();
  void put(const Item& item) {
    if (begins_) store(first_items_[begun_], item), begins_ = false;
    store(items_[items_written_++], item);
  }
  /// Field by field: a copy of what was just set in pieces would wait for these stores.
  static void store(Item& out, const Item& item) {
    out.request = item.request, out.kv_head = item.kv_head, out.first_row = item.first_row;
    out.qo_begin = item.qo_begin, out.qo_len = item.qo_len, out.kv_len = item.kv_len,
    out.kv_base = item.kv_base;
    out.kv_begin = item.kv_begin, out.kv_end = item.kv_end;
    out.first_slot = item.first_slot, out.part = item.part, out.parts = item.parts;
  }
  /// The next item is the worker's first one, if no other worker begins before it.
  void begin(std::int64_t worker) {
    begins_at_[worker] = narrow(items_written_);
    begun_ = worker, begins_ = true;
  }
  std::int64_t units_before_cut(std::int64_t units) const;
  void split(Item& tile, std::int64_t units, std::int64_t end);

  const KernelShape& shape_;
  const Limits& limits_;
  const std::int64_t total_, min_units_, workers_, share_, rest_;  ///< total = share * workers + rest
  std::int32_t* const begins_at_;                                  ///< each worker's first item: its number
  Item* const first_items_;
  Item* const items_;
  std::vector<Cut> cuts_;  ///< those of the tile that is being split
  std::int64_t position_ = 0;
  std::int64_t worker_ = 0, cut_ = 0;  ///< the next worker to begin, and where
  std::int64_t behind_ = 0;            ///< of cut_, in 1 / workers
  std::int64_t begun_ = 0;             ///< the last worker that has begun
  bool begins_ = false;                ///< it has no item yet
  std::int64_t items_written_ = 0, slots_ = 0;
};

}  // namespace kiln::attention
