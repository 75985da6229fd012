#include "attention/teams.hpp"

#include <algorithm>
#include <utility>

namespace kiln::attention {

Teams::Teams(const KernelShape& shape, const Limits& limits, std::int64_t size,
             std::vector<std::int64_t> counts, std::int32_t* out)
    : shape_(shape),
      limits_(limits),
      size_(size),
      counts_(std::move(counts)),
      begins_at_(out + workers_at()),
      first_items_(reinterpret_cast<Item*>(out + first_items_at(limits.workers))),
      items_(reinterpret_cast<Item*>(out + items_at(limits.workers))) {
  begin(0);
}

void Teams::begin(std::int64_t team) {
  next_ += (size_ - 1) * count_;  // after the items of the team before
  team_ = team, begins_ = idle_ = true;
  if (size_ > 1) count_ = counts_[static_cast<std::size_t>(team)];
  for (std::int64_t j = 0; j < size_; ++j) begins_at_[team * size_ + j] = narrow(next_ + j * count_);
}

void Teams::split(Item tile, std::int64_t kv_blocks, std::span<const Cut> cuts) {
  std::int32_t parts = 1;
  for (std::int64_t last = 0; const Cut& cut : cuts)
    if (cut.at > last && cut.at < kv_blocks) ++parts, last = cut.at;
  const std::int32_t begin = tile.kv_begin, end = tile.kv_end;
  if (parts > 1) tile.first_slot = narrow(slots_), tile.parts = parts, slots_ += size_ * parts;
  std::int64_t written = 0;
  const auto put_until = [&](std::int64_t at) {
    tile.kv_end = at < kv_blocks ? narrow(begin + at * shape_.tile_kv) : end;
    put(tile);
    tile.kv_begin = tile.kv_end, ++tile.part;
    written = at;
  };
  for (const auto& [team, at] : cuts) {
    if (at > written) put_until(at);
    this->begin(team);
  }
  if (written < kv_blocks) put_until(kv_blocks);
}

void Teams::finish() {
  next_ += (size_ - 1) * std::exchange(count_, 0);
  std::fill(begins_at_ + (team_ + 1) * size_, begins_at_ + table_words(limits_.workers), narrow(next_));
}

}  // namespace kiln::attention
