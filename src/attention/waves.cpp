#include "attention/waves.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "attention/layout.hpp"

namespace kiln::attention {
namespace {

/// Calls take(request, head, tile, range) for each tile along the line. The long tiles of a causal request come
/// first, so that the workers end at about the same time.
template <class Take>
void along_the_line(std::int64_t heads, std::span<const Tiles> tiles, const Take& take) {
  for (std::size_t request = 0; request < tiles.size(); ++request) {
    const Tiles& of = tiles[request];
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t tile = of.count(); tile-- > 0;) take(request, head, tile, of.range(tile));
    }
  }
}

}  // namespace

bool goes_in_waves(const KernelShape& shape, const Limits& limits, std::span<const Request> requests,
                   std::int64_t tiles) {
  if (shape.resident_kv <= 0 || tiles < kLeastInWaves * limits.workers || tiles > kMostInWaves) return false;
  std::int64_t kv = 0;
  for (const Request& r : requests)
    if (r.qo_len > 0) kv += r.kv_len;
  return kv * limits.kv_heads > shape.resident_kv;
}

Handed hand_out_in_waves(const KernelShape& shape, const Limits& limits, std::span<const Request> requests,
                         std::span<const Tiles> tiles, std::int32_t* out) {
  const auto workers = static_cast<std::size_t>(limits.workers);
  using Free = std::pair<std::int64_t, std::uint32_t>;  // the cost that a worker has, and the worker
  std::vector<Free> all(workers);
  for (std::uint32_t w = 0; w < workers; ++w) all[w] = {0, w};
  std::priority_queue<Free, std::vector<Free>, std::greater<>> next(std::greater<>(), std::move(all));
  std::vector<std::uint32_t> taken;
  std::vector<std::int32_t> at(workers + 1);  // items of the workers before each, in the end
  std::vector<bool> has_kv(workers);
  along_the_line(limits.kv_heads, tiles,
                 [&](std::size_t request, std::int64_t, std::int64_t, const KvRange& range) {
                   const auto [cost, w] = next.top();
                   next.pop();
                   next.push({cost + shape.tile_cost + tiles[request].kv_blocks_of(range), w});
                   taken.push_back(w);
                   ++at[w + 1];
                   if (range.begin < range.end) has_kv[w] = true;
                 });
  for (std::size_t w = 0; w < workers; ++w) at[w + 1] += at[w];

  std::int32_t* const begins = out + workers_at();
  std::copy(at.begin(), at.end(), begins);
  std::fill(begins + limits.workers + 1, begins + table_words(limits.workers), at.back());
  auto* const items = reinterpret_cast<Item*>(out + items_at(limits.workers));
  auto* const first_items = reinterpret_cast<Item*>(out + first_items_at(limits.workers));
  std::vector<bool> begun(workers);
  auto worker = taken.begin();
  along_the_line(limits.kv_heads, tiles,
                 [&](std::size_t i, std::int64_t head, std::int64_t tile, const KvRange& range) {
                   const Request& r = requests[i];
                   const Item item{.request = narrow(static_cast<std::int64_t>(i)),
                                   .kv_head = narrow(head),
                                   .first_row = narrow(tile * shape.tile_rows),
                                   .qo_begin = r.qo_begin,
                                   .qo_len = r.qo_len,
                                   .kv_len = r.kv_len,
                                   .kv_base = r.kv_base,
                                   .kv_begin = range.begin,
                                   .kv_end = range.end,
                                   .first_slot = -1,
                                   .part = 0,
                                   .parts = 1};
                   const std::uint32_t w = *worker++;
                   if (!begun[w]) begun[w] = true, std::memcpy(first_items + w, &item, sizeof item);
                   std::memcpy(items + at[w]++, &item, sizeof item);
                 });
  return {.items = static_cast<std::int64_t>(taken.size()),
          .slots = 0,
          .workers = limits.workers,
          .busy = std::count(has_kv.begin(), has_kv.end(), true)};
}

}  // namespace kiln::attention
