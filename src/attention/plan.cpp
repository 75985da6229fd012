#include "attention/plan.hpp"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "attention/layout.hpp"
#include "attention/line.hpp"
#include "attention/requests.hpp"
#include "attention/tiles.hpp"
#include "kiln/error.hpp"

namespace kiln::attention {
namespace {

/// Of all tiles of one kv head.
std::int64_t head_cost(const KernelShape& shape, const Tiles& tiles) {
  const std::int64_t count = tiles.count();
  if (count == 0) return 0;
  if (tiles.alike()) return count * (tiles.range(0).units + shape.tile_cost);
  std::int64_t out = count * shape.tile_cost;
  for (std::int64_t i = 0; i < count; ++i) out += tiles.range(i).units;
  return out;
}

}  // namespace

Summary plan(const KernelShape& shape, const Limits& limits, const Lengths& lengths,
             std::span<std::int32_t> out) {
  if (const std::int64_t words = plan_words(shape, limits); std::cmp_less(out.size(), words))
    throw Error(Errc::invalid_argument, "attention plan: the buffer has " + std::to_string(out.size() * 4) +
                                            " bytes; these limits need " + std::to_string(words * 4));
  const std::vector<Request> requests = checked_requests(shape, limits, lengths);
  std::int64_t total = 0, tokens = 0;
  for (const Request& r : requests) {
    total += limits.kv_heads * head_cost(shape, Tiles(shape, lengths.window_left, r));
    tokens += r.qo_len;
  }

  std::memset(out.data() + counters_at(limits.workers), 0,
              4 * static_cast<std::size_t>(table_words(limits.workers)));
  Line line(shape, limits, total, out.data());
  std::vector<KvRange> ranges;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request& r = requests[i];
    const Tiles tiles(shape, lengths.window_left, r);
    ranges.clear();
    for (std::int64_t t = 0; t < tiles.count(); ++t)
      ranges.push_back(t > 0 && tiles.alike() ? ranges[0] : tiles.range(t));
    Item item{.request = narrow(static_cast<std::int64_t>(i)),
              .kv_head = 0,
              .first_row = 0,
              .qo_begin = r.qo_begin,
              .qo_len = r.qo_len,
              .kv_len = r.kv_len,
              .kv_base = r.kv_base,
              .kv_begin = 0,
              .kv_end = 0,
              .first_slot = -1,
              .part = 0,
              .parts = 1};
    for (std::int64_t head = 0; head < limits.kv_heads; ++head) {
      item.kv_head = narrow(head), item.first_row = 0;
      for (const KvRange& range : ranges) {
        item.kv_begin = range.begin, item.kv_end = range.end;
        line.add(item, range.units);
        item.first_row += narrow(shape.tile_rows);
      }
    }
  }
  line.finish();

  const std::int64_t requests_at = items_at(limits.workers) + line.items() * kItemWords;
  const Header header{.made_for = made_for(shape.tile_rows, shape.tile_kv, shape.group, shape.causal),
                      .workers = narrow(limits.workers),
                      .kv_heads = narrow(limits.kv_heads),
                      .window_left = narrow(std::min(lengths.window_left, kMost)),
                      .requests = narrow(lengths.requests),
                      .tokens = narrow(tokens),
                      .items = narrow(line.items()),
                      .slots = narrow(line.slots()),
                      .requests_at = narrow(requests_at),
                      .reserved = {}};
  std::memcpy(out.data(), &header, sizeof header);
  if (!requests.empty())
    std::memcpy(out.data() + requests_at, requests.data(), requests.size() * sizeof(Request));
  return {requests_at + lengths.requests * kRequestWords, line.items(), line.slots(),
          total > 0 ? line.workers() : 0, total};
}

}  // namespace kiln::attention
