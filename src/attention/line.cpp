#include "attention/line.hpp"

#include <algorithm>

namespace kiln::attention {
namespace {

/// Of at least so much each.
std::int64_t shares_of(std::int64_t total, std::int64_t least, std::int64_t most) {
  return std::clamp<std::int64_t>(total / least, 1, most);
}

bool is_short(const KernelShape& shape, const Limits& limits, std::int64_t total) {
  return shape.short_units > 0 &&
         shares_of(total, shape.min_units + shape.tile_cost, limits.workers) < limits.workers / 3;
}

}  // namespace

Line::Line(const KernelShape& shape, const Limits& limits, std::int64_t total, std::int32_t* out)
    : shape_(shape),
      limits_(limits),
      total_(total),
      min_units_(is_short(shape, limits, total) ? shape.short_units : shape.min_units),
      workers_(shares_of(total, min_units_ + shape.tile_cost,
                         is_short(shape, limits, total) ? limits.workers / 3 : limits.workers)),
      share_(total_ / workers_),
      rest_(total_ % workers_),
      first_items_(out + workers_at()),
      items_(reinterpret_cast<Item*>(out + items_at(limits.workers))) {
  first_items_[0] = 0;
  cuts_.reserve(static_cast<std::size_t>(workers_));
  next_cut();
}

/// To total * worker / workers, rounded down: without a division, and where the product would not fit.
void Line::next_cut() {
  if (++worker_ >= workers_) {
    cut_ = total_;
    return;
  }
  cut_ += share_, behind_ += rest_;
  if (behind_ >= workers_) ++cut_, behind_ -= workers_;
}

/// Of the tile that begins here; slivers go to the other side.
std::int64_t Line::units_before_cut(std::int64_t units) const {
  const std::int64_t before = cut_ - position_ - shape_.tile_cost;
  if (before < min_units_) return 0;
  return units - before < min_units_ ? units : before;
}

void Line::split(Item& tile, std::int64_t units, std::int64_t end) {
  cuts_.clear();
  std::int32_t parts = 1;
  // Cuts are at least min_units apart, or there would be fewer workers: only the first and the last can be
  // slivers.
  for (std::int64_t last = 0; cut_ < end && worker_ < workers_; next_cut()) {
    const std::int64_t at = units_before_cut(units);
    if (at > last && at < units) ++parts, last = at;
    cuts_.push_back({worker_, at});
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
  for (const auto& [worker, at] : cuts_) {
    if (at > begun && at < units) put_until(narrow(whole.kv_begin + at * shape_.tile_kv)), begun = at;
    first_items_[worker] = narrow(at < units ? items_written_ : first_item + parts);
  }
  put_until(whole.kv_end);
  tile = whole;
}

void Line::finish() {
  std::fill(first_items_ + worker_, first_items_ + table_words(limits_.workers), narrow(items_written_));
}

}  // namespace kiln::attention
