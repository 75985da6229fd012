// Teams of workers, which have the same kv tokens of neighbouring heads: writes what each worker has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/layout.hpp"
#include "attention/line.hpp"
#include "attention/plan.hpp"

namespace kiln::attention {

/// Workers of a team, each with one of so many neighbouring heads: the largest number that divides the heads
/// and leaves out at most one worker in 32. 1 unless the kernel wants its heads together.
std::int64_t team_size(const KernelShape& shape, const Limits& limits);

class Teams {
 public:
  /// `counts`: items that a worker of each team will have; not looked at where a team is one worker. `out` is
  /// the plan's first word. The shape and the limits outlive it.
  Teams(const KernelShape& shape, const Limits& limits, std::int64_t size, std::vector<std::int64_t> counts,
        std::int32_t* out);

  /// The next item of the line, of whole tiles, which stands for those of as many heads as a team has
  /// workers: as it is for the first of them. `many`: then the same of the next heads.
  void put(const Item& item, std::int64_t many = 1) {
    if (begins_) put_to(first_items_ + team_ * size_, 1, item, 0), begins_ = false;
    if (idle_ && item.kv_begin < item.kv_end) idle_ = false, busy_ += size_;
    for (std::int64_t i = 0; i < many; ++i) put_to(items_ + next_++, count_, item, i * size_);
  }
  /// The same for one tile, whole and without slots, at whose cuts a share or a part begins.
  void split(Item tile, std::int64_t units, std::span<const Cut> cuts);
  /// Behind the last tile.
  void finish();

  /// Of all workers. REQUIRES: finish().
  std::int64_t items() const { return next_; }
  std::int64_t slots() const { return slots_; }
  /// Workers that have kv tokens.
  std::int64_t busy() const { return busy_; }

 private:
  /// For the head `further` behind the item's own. Field by field: a copy of what was just set in pieces
  /// would wait for these stores.
  static void store(Item& out, const Item& item, std::int64_t further) {
    out.request = item.request, out.kv_head = item.kv_head + narrow(further), out.first_row = item.first_row;
    out.qo_begin = item.qo_begin, out.qo_len = item.qo_len, out.kv_len = item.kv_len,
    out.kv_base = item.kv_base;
    out.kv_begin = item.kv_begin, out.kv_end = item.kv_end;
    out.first_slot = item.first_slot + (item.parts > 1 ? narrow(further) * item.parts : 0),
    out.part = item.part, out.parts = item.parts;
  }
  /// `distance`: from a worker's item to the next worker's.
  void put_to(Item* out, std::int64_t distance, const Item& item, std::int64_t further) const {
    store(*out, item, further);
    for (std::int64_t j = 1; j < size_; ++j) store(*(out += distance), item, further + j);
  }
  void begin(std::int64_t team);

  const KernelShape& shape_;
  const Limits& limits_;
  const std::int64_t size_;
  const std::vector<std::int64_t> counts_;
  std::int32_t* const begins_at_;  ///< each worker's first item: its number
  Item* const first_items_;
  Item* const items_;
  std::int64_t team_ = 0;              ///< the one whose items these are
  std::int64_t count_ = 0;             ///< items of each of its workers, which lie behind each other
  bool begins_ = false;                ///< it has none yet
  bool idle_ = false;                  ///< they have no kv tokens, so far
  std::int64_t next_ = 0, slots_ = 0;  ///< the next item of the team's first worker, and the next slot
  std::int64_t busy_ = 0;
};

}  // namespace kiln::attention
