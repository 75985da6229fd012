// Teams of workers, which have the same kv tokens of neighbouring heads: writes what each worker has.
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

/// Workers of a team, each with one of so many neighbouring heads: the largest number that divides the heads
/// and leaves out at most one worker in 32. 1 unless the kernel wants its heads together.
std::int64_t team_size(const KernelShape& shape, const Limits& limits);

class Teams {
 public:
  /// `counts`: items that a worker of each team will have; not looked at where a team is one worker. `out` is
  /// the work list's first word. The shape and the limits outlive it.
  Teams(const KernelShape& shape, const Limits& limits, std::int64_t size, std::vector<std::int64_t> counts,
        std::int32_t* out);

  /// The next item of the line, of whole tiles, which stands for those of as many heads as a team has
  /// workers: as it is for the first of them. `many`: then the same of the next heads.
  void put(const Item& item, std::int64_t many = 1) {
    if (begins_) Copies(item, 0).write(first_items_ + team_ * size_, 1, size_), begins_ = false;
    if (idle_ && item.kv_begin < item.kv_end) idle_ = false, busy_ += size_;
    if (size_ == 1) {  // heads and items follow each other alike
      Copies(item, 0).write(items_ + next_, 1, many), next_ += many;
      return;
    }
    for (std::int64_t i = 0; i < many; ++i) Copies(item, i * size_).write(items_ + next_++, count_, size_);
  }
  /// The same for one tile, whole and without slots, at whose cuts a share or a part begins.
  void split(Item tile, std::int64_t kv_blocks, std::span<const Cut> cuts);
  /// Behind the last tile.
  void finish();

  /// Of all workers. REQUIRES: finish().
  std::int64_t items() const { return next_; }
  std::int64_t slots() const { return slots_; }
  /// Workers of the teams up to the last that has begun. REQUIRES: there is an item.
  std::int64_t workers() const { return (team_ + 1) * size_; }
  /// Workers that have kv tokens.
  std::int64_t busy() const { return busy_; }

 private:
  /// An item, and the same of the heads behind its own. In registers: a copy of what was just set in pieces
  /// would wait for these stores.
  class Copies {
   public:
    /// The first is of the head `further` behind the item's own.
    Copies(const Item& item, std::int64_t further)
        : origin_{item.request, item.kv_head, item.first_row, item.qo_begin},
          lengths_{item.qo_len, item.kv_len, item.kv_base, item.kv_begin},
          part_{item.kv_end, item.first_slot, item.part, item.parts},
          slots_{0, item.parts > 1 ? item.parts : 0, 0, 0} {
      origin_ += kHead * narrow(further), part_ += slots_ * narrow(further);
    }
    /// So many of them, `distance` items apart. Goes on from those that were written.
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
