#include "attention/plan.hpp"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "attention/layout.hpp"
#include "attention/line.hpp"
#include "attention/requests.hpp"
#include "attention/teams.hpp"
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

/// Calls tile(item, units) for each tile of the line, in its order: for the first of its `team` heads.
template <class Tile>
void walk(const KernelShape& shape, std::int64_t window_left, const std::vector<Request>& requests,
          std::int64_t head_groups, std::int64_t team, Tile& tile) {
  std::vector<KvRange> ranges;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request& r = requests[i];
    const Tiles tiles(shape, window_left, r);
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
    for (std::int64_t group = 0; group < head_groups; ++group) {
      item.kv_head = narrow(group * team), item.first_row = 0;
      for (const KvRange& range : ranges) {
        item.kv_begin = range.begin, item.kv_end = range.end;
        tile(item, std::int64_t{range.units});
        item.first_row += narrow(shape.tile_rows);
      }
    }
  }
}

/// Tiles and parts of tiles in each share of the line.
template <class EachTile>
std::vector<std::int64_t> count_items(Line line, const EachTile& each_tile) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(line.shares()));
  auto share = out.begin();
  each_tile([&](const Item&, std::int64_t units) {
    std::int64_t counted = 0;
    for (const auto& [next, at] : line.next(units)) {
      if (at > counted) ++*share, counted = at;
      share = out.begin() + next;
    }
    if (counted < units) ++*share;
  });
  return out;
}

}  // namespace

Summary plan(const KernelShape& shape, const Limits& limits, const Lengths& lengths,
             std::span<std::int32_t> out) {
  if (const std::int64_t words = plan_words(shape, limits); std::cmp_less(out.size(), words))
    throw Error(Errc::invalid_argument, "attention plan: the buffer has " + std::to_string(out.size() * 4) +
                                            " bytes; these limits need " + std::to_string(words * 4));
  const std::vector<Request> requests = checked_requests(shape, limits, lengths);
  const std::int64_t team = team_size(shape, limits), head_groups = limits.kv_heads / team;
  std::int64_t total = 0, tokens = 0;
  for (const Request& r : requests) {
    total += head_groups * head_cost(shape, Tiles(shape, lengths.window_left, r));
    tokens += r.qo_len;
  }

  const auto each_tile = [&](auto&& tile) {
    walk(shape, lengths.window_left, requests, head_groups, team, tile);
  };
  Line line(shape, total, limits.workers / team);
  std::vector<std::int64_t> counts;
  if (team > 1) counts = count_items(line, each_tile);
  std::memset(out.data() + counters_at(limits.workers), 0,
              4 * static_cast<std::size_t>(table_words(limits.workers)));
  Teams teams(shape, limits, team, std::move(counts), out.data());
  each_tile([&](Item& tile, std::int64_t units) { teams.add(tile, units, line.next(units)); });
  teams.finish();

  const std::int64_t requests_at = items_at(limits.workers) + teams.items() * kItemWords;
  const Header header{.made_for = made_for(shape.tile_rows, shape.tile_kv, shape.group, shape.causal),
                      .workers = narrow(limits.workers),
                      .kv_heads = narrow(limits.kv_heads),
                      .window_left = narrow(std::min(lengths.window_left, kMost)),
                      .requests = narrow(lengths.requests),
                      .tokens = narrow(tokens),
                      .items = narrow(teams.items()),
                      .slots = narrow(teams.slots()),
                      .requests_at = narrow(requests_at),
                      .reserved = {}};
  std::memcpy(out.data(), &header, sizeof header);
  if (!requests.empty())
    std::memcpy(out.data() + requests_at, requests.data(), requests.size() * sizeof(Request));
  return {requests_at + lengths.requests * kRequestWords, teams.items(), teams.slots(),
          total > 0 ? line.shares() * team : 0, total * team};
}

}  // namespace kiln::attention
