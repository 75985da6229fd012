#include "attention/line.hpp"

#include <algorithm>

namespace kiln::attention {
namespace {

/// Shorter lines are shared out, if only for each worker to have an item of its own beside spare ones.
bool is_long(const KernelShape& shape, std::int64_t total, std::int64_t workers) {
  return total / workers >= std::max<std::int64_t>(8, 2 * (shape.tile_cost + 2 * shape.min_units));
}

/// Of the line, for a spare share.
std::int64_t least_spare(const KernelShape& shape) { return std::max<std::int64_t>(2, shape.min_units); }

}  // namespace

Line::Line(const KernelShape& shape, const Limits& limits, std::int64_t total, std::int32_t* out)
    : shape_(shape),
      limits_(limits),
      total_(total),
      workers_(std::clamp<std::int64_t>(total / (shape.min_units + shape.tile_cost), 1, limits.workers)),
      shares_(workers_),
      first_items_(out + workers_at()),
      items_(reinterpret_cast<Item*>(out + items_at(limits.workers, shape.spare))),
      spares_begin_(limits.workers) {
  std::int64_t shared_out = total;
  if (shape.spare > 0 && workers_ == limits.workers && is_long(shape, total, workers_)) {
    shared_out = total / 8 * 5;
    shares_ = workers_ * (1 + shape.spare);
  }
  share_ = shared_out / workers_, rest_ = shared_out % workers_;
  first_items_[0] = 0;
  cuts_.reserve(static_cast<std::size_t>(workers_));
  next_cut();
}

/// A round has half of what is left, and the last one all of it.
void Line::begin_spares() {
  spares_begin_ += workers_;
  const std::int64_t left = total_ - cut_, size = ++round_ < shape_.spare ? left / 2 : left;
  share_ = std::max(size / workers_, least_spare(shape_));
  rest_ = size / workers_ == share_ ? size % workers_ : 0;
  behind_ = 0;
}

/// To begin + size * n / workers, rounded down: without a division, and where the product would not fit.
void Line::next_cut() {
  if (++next_ >= shares_) {
    cut_ = total_;
    return;
  }
  if (next_ > spares_begin_) begin_spares();
  cut_ += share_, behind_ += rest_;
  if (behind_ >= workers_) ++cut_, behind_ -= workers_;
  if (cut_ >= total_) cut_ = total_, shares_ = next_;  // least_spare() was more than there was left
}

/// Of the tile that begins here; slivers go to the other side.
std::int64_t Line::units_before_cut(std::int64_t units) const {
  const std::int64_t before = cut_ - position_ - shape_.tile_cost;
  if (before < shape_.min_units) return 0;
  return units - before < shape_.min_units ? units : before;
}

void Line::split(Item& tile, std::int64_t units, std::int64_t end) {
  cuts_.clear();
  std::int32_t parts = 1;
  // Cuts are at least min_units apart, or there would be fewer workers: only the first and the last can be
  // slivers.
  for (std::int64_t last = 0; cut_ < end && next_ < shares_; next_cut()) {
    const std::int64_t at = units_before_cut(units);
    if (at > last && at < units) ++parts, last = at;
    cuts_.push_back({next_, at});
  }
  const Item whole = tile;
  const std::int64_t first_item = items_written_;
  if (parts > 1) tile.first_slot = narrow(slots_), tile.parts = parts, slots_ += parts;
  const auto put_until = [&](std::int32_t kv_end) {
    tile.kv_end = kv_end;
    put(tile);
    tile.kv_begin = kv_end, ++tile.part;
  };
  std::int64_t begun = 0;  // units that are written
  for (const auto& [share, at] : cuts_) {
    if (at > begun && at < units) put_until(narrow(whole.kv_begin + at * shape_.tile_kv)), begun = at;
    if (share <= limits_.workers) first_items_[share] = narrow(at < units ? items_written_ : first_item + parts);
  }
  put_until(whole.kv_end);
  tile = whole;
}

void Line::finish() {
  const std::int64_t begun = std::min(next_, limits_.workers + 1);
  std::fill(first_items_ + begun, first_items_ + table_words(limits_.workers), narrow(items_written_));
}

}  // namespace kiln::attention
