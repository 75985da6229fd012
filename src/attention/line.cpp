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
      begins_at_(out + workers_at()),
      first_items_(reinterpret_cast<Item*>(out + first_items_at(limits.workers))),
      items_(reinterpret_cast<Item*>(out + items_at(limits.workers))) {
  begin(0);
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
  if (parts > 1) tile.first_slot = narrow(slots_), tile.parts = parts, slots_ += parts;
  std::int64_t begun = 0;  // units that are written
  const auto put_until = [&](std::int64_t at) {
    tile.kv_end = at < units ? narrow(whole.kv_begin + at * shape_.tile_kv) : whole.kv_end;
    put(tile);
    tile.kv_begin = tile.kv_end, ++tile.part;
    begun = at;
  };
  for (const auto& [worker, at] : cuts_) {
    if (at > begun) put_until(at);
    begin(worker);
  }
  if (begun < units) put_until(units);
  tile = whole;
}

void Line::finish() {
  std::fill(begins_at_ + worker_, begins_at_ + table_words(limits_.workers), narrow(items_written_));
}

}  // namespace kiln::attention
