#include "attention/plan.hpp"

#include <algorithm>
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

/// The tiles of each request, of one kv head.
struct Columns {
  struct Column {
    std::size_t first, tiles;  ///< in ends
  };
  std::vector<Column> of;          ///< [requests]
  std::vector<std::int64_t> ends;  ///< of each tile: what it takes of the line with those before it
  std::int64_t cost = 0;           ///< of all

  Columns(const KernelShape& shape, std::int64_t window_left, const std::vector<Request>& requests) {
    of.reserve(requests.size()), ends.reserve(requests.size());
    for (const Request& r : requests) {
      const std::size_t first = ends.size();
      Tiles(shape, window_left, r).add_ends(ends);
      of.push_back({first, ends.size() - first});
      if (ends.size() > first) cost += ends.back();
    }
  }
  std::span<const std::int64_t> ends_of(std::size_t request) const {
    return std::span(ends).subspan(of[request].first, of[request].tiles);
  }
};

/// The next tiles of the line, where it is cut: calls whole(first, count) for as many whole tiles as an item
/// takes, and split(tile, units, cuts) for one with cuts.
template <class Whole, class Split>
void cut(const KernelShape& shape, Line& line, std::span<const std::int64_t> ends, const Whole& whole,
         const Split& split) {
  std::int64_t before = 0;
  for (std::size_t first = 0, next = 0; first < ends.size(); first = next, before = ends[next - 1]) {
    const std::int64_t until = before + line.room();
    if (!shape.tiles_together)
      next += ends[first] <= until;
    else if (ends.back() <= until)
      next = ends.size();
    else
      next =
          static_cast<std::size_t>(std::upper_bound(ends.begin() + first, ends.end(), until) - ends.begin());
    if (next > first) {
      whole(first, next - first);
      line.skip(ends[next - 1] - before);
    } else {
      const std::int64_t units = ends[next++] - before - shape.tile_cost;
      split(first, units, line.next(units));
    }
  }
}

/// Items in each share of the line.
std::vector<std::int64_t> count_items(const KernelShape& shape, Line line, const Columns& columns,
                                      std::int64_t head_groups) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(line.shares()));
  auto share = out.begin();
  const auto whole = [&](std::size_t, std::size_t) { ++*share; };
  const auto split = [&](std::size_t, std::int64_t units, std::span<const Cut> cuts) {
    std::int64_t counted = 0;
    for (const auto& [next, at] : cuts) {
      if (at > counted) ++*share, counted = at;
      share = out.begin() + next;
    }
    if (counted < units) ++*share;
  };
  for (std::size_t i = 0; i < columns.of.size(); ++i)
    for (std::int64_t group = 0; group < head_groups; ++group)
      cut(shape, line, columns.ends_of(i), whole, split);
  return out;
}

/// Gives the teams their items: those of the line's tiles, each for the first of its `team` heads.
void hand_out(const KernelShape& shape, std::int64_t window_left, const std::vector<Request>& requests,
              const Columns& columns, std::int64_t head_groups, std::int64_t team, Line& line, Teams& teams) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::span ends = columns.ends_of(i);
    if (ends.empty()) continue;
    const Request& r = requests[i];
    const Tiles tiles(shape, window_left, r);
    const KvRange first_range = tiles.range(0);
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
    const auto go_to = [&](std::size_t tile, std::size_t many) {
      const auto at = static_cast<std::int64_t>(tile);
      const KvRange range = at == 0 ? first_range : tiles.range(at);
      item.first_row = narrow(at * shape.tile_rows), item.kv_begin = range.begin, item.kv_end = range.end;
      item.first_slot = -narrow(static_cast<std::int64_t>(many));
    };
    const auto whole = [&](std::size_t tile, std::size_t many) {
      go_to(tile, many);
      teams.put(item);
    };
    const auto split = [&](std::size_t tile, std::int64_t units, std::span<const Cut> cuts) {
      go_to(tile, 1);
      teams.split(item, units, cuts);
    };
    for (std::int64_t group = 0; group < head_groups; ++group) {
      item.kv_head = narrow(group * team);
      cut(shape, line, ends, whole, split);
    }
  }
}

}  // namespace

Summary plan(const KernelShape& shape, const Limits& limits, const Lengths& lengths,
             std::span<std::int32_t> out) {
  if (const std::int64_t words = plan_words(shape, limits); std::cmp_less(out.size(), words))
    throw Error(Errc::invalid_argument, "attention plan: the buffer has " + std::to_string(out.size() * 4) +
                                            " bytes; these limits need " + std::to_string(words * 4));
  const std::vector<Request> requests = checked_requests(shape, limits, lengths);
  const std::int64_t team = team_size(shape, limits), head_groups = limits.kv_heads / team;
  const Columns columns(shape, lengths.window_left, requests);
  const std::int64_t total = head_groups * columns.cost;
  std::int64_t tokens = 0;
  for (const Request& r : requests) tokens += r.qo_len;

  Line line(shape, total, limits.workers / team);
  std::vector<std::int64_t> counts;
  if (team > 1) counts = count_items(shape, line, columns, head_groups);
  std::memset(out.data() + counters_at(limits.workers), 0,
              4 * static_cast<std::size_t>(table_words(limits.workers)));
  Teams teams(shape, limits, team, std::move(counts), out.data());
  hand_out(shape, lengths.window_left, requests, columns, head_groups, team, line, teams);
  teams.finish();

  const std::int64_t requests_at = items_at(limits.workers) + teams.items() * kItemWords;
  const Header header{
      .made_for = made_for(shape.tile_rows, shape.tile_kv, shape.group, shape.causal, shape.tiles_together),
      .workers = narrow(limits.workers),
      .kv_heads = narrow(limits.kv_heads),
      .window_left = narrow(std::min(lengths.window_left, kMost)),
      .requests = narrow(lengths.requests),
      .tokens = narrow(tokens),
      .items = narrow(teams.items()),
      .slots = narrow(teams.slots()),
      .requests_at = narrow(requests_at),
      .busy = narrow(teams.busy()),
      .ticks = 0,
      .reserved = {}};
  std::memcpy(out.data(), &header, sizeof header);
  if (!requests.empty())
    std::memcpy(out.data() + requests_at, requests.data(), requests.size() * sizeof(Request));
  return {requests_at + lengths.requests * kRequestWords, teams.items(), teams.slots(),
          total > 0 ? line.shares() * team : 0, total * team};
}

}  // namespace kiln::attention
