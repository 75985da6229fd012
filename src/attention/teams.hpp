// Writes the items of each worker. The workers of a team have the same kv tokens of neighbouring heads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "attention/layout.hpp"
#include "attention/line.hpp"
#include "attention/plan.hpp"

namespace kiln::attention {

class Teams {
 public:
  /// `counts`: items that a worker of each team will have; ignored where a team is one worker. `out`: the
  /// first word of the work list. The shape and the limits must outlive this object.
  Teams(const KernelShape& shape, const Limits& limits, std::int64_t size, std::vector<std::int64_t> counts,
        std::int32_t* out);

  /// Writes the next item of the line for each worker of the team. `item` is given as the team's first worker
  /// has it; the other workers get it for the next heads. `many`: the item is then repeated for the next
  /// groups of heads, `many` groups in all.
  void put(const Item& item, std::int64_t many = 1) {
    if (begins_) Copies(item, 0).write(first_items_ + team_ * size_, 1, size_), begins_ = false;
    if (idle_ && item.kv_begin < item.kv_end) idle_ = false, busy_ += size_;
    if (size_ == 1) {  // consecutive heads have consecutive items
      Copies(item, 0).write(items_ + next_, 1, many), next_ += many;
      return;
    }
    for (std::int64_t i = 0; i < many; ++i) Copies(item, i * size_).write(items_ + next_++, count_, size_);
  }
  /// Writes one tile, cut into parts. A share, and so the next team, begins at each cut. The caller passes
  /// the tile whole and without slots.
  void split(Item tile, std::int64_t kv_blocks, std::span<const Cut> cuts);
  /// Completes the table of first items. REQUIRES: the last tile was written.
  void finish();

  /// Items of all workers. REQUIRES: finish() was called.
  std::int64_t items() const { return next_; }
  std::int64_t slots() const { return slots_; }
  /// Workers of all teams up to the last team that has begun. REQUIRES: there is an item.
  std::int64_t workers() const { return (team_ + 1) * size_; }
  /// Workers that have kv tokens.
  std::int64_t busy() const { return busy_; }

 private:
  /// Copies of an item for consecutive heads. They stay in registers: an item that was just stored field by
  /// field can be read only when these stores are done.
  class Copies {
   public:
    /// The first copy is for the head that comes `further` heads after the item's own.
    Copies(const Item& item, std::int64_t further)
        : origin_{item.request, item.kv_head, item.first_row, item.qo_begin},
          lengths_{item.qo_len, item.kv_len, item.kv_base, item.kv_begin},
          part_{item.kv_end, item.first_slot, item.part, item.parts},
          slots_{0, item.parts > 1 ? item.parts : 0, 0, 0} {
      origin_ += kHead * narrow(further), part_ += slots_ * narrow(further);
    }
    /// Writes `many` copies, `distance` items apart. The next call goes on with the next head.
    void write(Item* out, std::int64_t distance, std::int64_t many) {
      static_assert(offsetof(Item, kv_head) == 4 && offsetof(Item, qo_len) == sizeof(Words) &&
                    offsetof(Item, kv_end) == 2 * sizeof(Words) && sizeof(Item) == 3 * sizeof(Words));
      for (std::int64_t i = 0; i < many; ++i) {
        auto* const to = reinterpret_cast<char*>(out + i * distance);
        std::memcpy(to, &origin_, sizeof origin_);
        std::memcpy(to + sizeof origin_, &lengths_, sizeof lengths_);
        std::memcpy(to + 2 * sizeof origin_, &part_, sizeof part_);
        origin_ += kHead, part_ += slots_;
      }
    }

   private:
    using Words = std::int32_t __attribute__((vector_size(16)));
    static constexpr Words kHead{0, 1, 0, 0};
    Words origin_, lengths_, part_, slots_;
  };
  void begin(std::int64_t team);

  const KernelShape& shape_;
  const Limits& limits_;
  const std::int64_t size_;
  const std::vector<std::int64_t> counts_;
  std::int32_t* const begins_at_;  ///< for each worker, the number of its first item
  Item* const first_items_;
  Item* const items_;
  std::int64_t team_ = 0;              ///< the team whose items are being written
  std::int64_t count_ = 0;             ///< items of each of its workers; the workers' items are consecutive
  bool begins_ = false;                ///< the team has no item yet
  bool idle_ = false;                  ///< the team's items have no kv tokens so far
  std::int64_t next_ = 0, slots_ = 0;  ///< the next item of the team's first worker, and the next slot
  std::int64_t busy_ = 0;
};

}  // namespace kiln::attention
