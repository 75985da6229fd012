#include "attention/plan.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention/layout.hpp"
#include "attention/line.hpp"
#include "attention/requests.hpp"
#include "attention/teams.hpp"
#include "attention/tiles.hpp"
#include "attention/waves.hpp"
#include "kiln/error.hpp"

namespace kiln::attention {
namespace {

/// The tiles that all requests have for one kv head.
struct Batch {
  const work_list::TileShape shape;
  const Slope slope;
  std::vector<Tiles> tiles;  ///< [requests]
  std::int64_t cost = 0;     ///< cost of all tiles
  std::int64_t count = 0;    ///< number of all tiles

  Batch(const KernelShape& given, const Windows& windows, const std::vector<Request>& requests)
      : shape(given),
        slope(shape, std::ranges::any_of(requests, [&](const Request& r) {  // one tile needs no sums
                return r.qo_len * shape.group > shape.tile_rows;
              })) {
    tiles.reserve(requests.size());
    for (const Request& r : requests) {
      const Tiles& of = tiles.emplace_back(shape, slope, windows, r);
      cost += of.cost(), count += of.count();
    }
  }
  /// The largest cost of a tile.
  std::int64_t longest() const {
    std::int64_t out = 0;
    for (const Tiles& of : tiles)
      for (std::int64_t i = 0; i < of.count(); ++i) out = std::max(out, of.cost(i + 1) - of.cost(i));
    return out;
  }
  Batch(const Batch&) = delete;  // the tiles keep the addresses of the shape and the slope
};

/// Walks along a request's tiles on the line, and makes one of three calls for each stretch of them:
/// - columns(head, many): each of the next `many` heads has all its tiles in one item.
/// - whole(head, tile, many, range): one item has `many` whole tiles of a head. `range` belongs to the first
///   of them.
/// - split(head, tile, range, kv_blocks, cuts): this tile does not fit before the next cut.
///
/// `head` counts groups of heads, with one head for each worker of a team.
template <class Columns, class Whole, class Split>
void walk(const KernelShape& shape, Line& line, const Tiles& tiles, std::int64_t heads,
          const Columns& columns, const Whole& whole, const Split& split) {
  const std::int64_t count = tiles.count(), all = tiles.cost();
  const bool one_item = shape.tiles_together || count == 1;
  for (std::int64_t head = 0; count > 0 && head < heads; ++head) {
    if (one_item && all <= line.room()) {
      const std::int64_t many = std::min(heads - head, line.room() / all);
      columns(head, many);
      line.skip(many * all), head += many;
      if (head == heads) return;
    }
    for (Tiles::Reach done{0, 0}; done.tiles < count;) {
      const std::int64_t until = done.cost + line.room();
      Tiles::Reach next = shape.tiles_together ? tiles.within(until, done) : done;
      const KvRange range = tiles.range(done.tiles);
      const std::int64_t kv_blocks = tiles.kv_blocks_of(range),
                         behind = done.cost + kv_blocks + shape.tile_cost;
      if (!shape.tiles_together && behind <= until) next = {done.tiles + 1, behind};
      if (next.tiles > done.tiles) {
        whole(head, done.tiles, next.tiles - done.tiles, range);
        line.skip(next.cost - done.cost);
      } else {
        next = {done.tiles + 1, behind};
        split(head, done.tiles, range, kv_blocks, line.next(kv_blocks));
      }
      done = next;
    }
  }
}

/// Items in each share of the line.
std::vector<std::int64_t> count_items(const KernelShape& shape, Line line, const Batch& batch,
                                      std::int64_t head_groups) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(line.shares()));
  auto share = out.begin();
  const auto columns = [&](std::int64_t, std::int64_t many) { *share += many; };
  const auto whole = [&](std::int64_t, std::int64_t, std::int64_t, const KvRange&) { ++*share; };
  const auto split = [&](std::int64_t, std::int64_t, const KvRange&, std::int64_t kv_blocks,
                         std::span<const Cut> cuts) {
    std::int64_t counted = 0;
    for (const auto& [next, at] : cuts) {
      if (at > counted) ++*share, counted = at;
      share = out.begin() + next;
    }
    if (counted < kv_blocks) ++*share;
  };
  for (const Tiles& tiles : batch.tiles) walk(shape, line, tiles, head_groups, columns, whole, split);
  return out;
}

/// Gives the teams the items of the line. Each item names the first of its `team` heads.
void hand_out(const KernelShape& shape, const std::vector<Request>& requests, const Batch& batch,
              std::int64_t head_groups, std::int64_t team, Line& line, Teams& teams) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request& r = requests[i];
    const Tiles& tiles = batch.tiles[i];
    if (tiles.count() == 0) continue;
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
    const auto go_to = [&](std::int64_t head, std::int64_t tile, std::int64_t many, const KvRange& range) {
      item.kv_head = narrow(head * team), item.first_row = narrow(tile * shape.tile_rows);
      item.kv_begin = range.begin, item.kv_end = range.end;
      item.first_slot = -narrow(many);
    };
    const auto columns = [&](std::int64_t head, std::int64_t many) {
      go_to(head, 0, tiles.count(), first_range);
      teams.put(item, many);
    };
    const auto whole = [&](std::int64_t head, std::int64_t tile, std::int64_t many, const KvRange& range) {
      go_to(head, tile, many, range);
      teams.put(item);
    };
    const auto split = [&](std::int64_t head, std::int64_t tile, const KvRange& range, std::int64_t kv_blocks,
                           std::span<const Cut> cuts) {
      go_to(head, tile, 1, range);
      teams.split(item, kv_blocks, cuts);
    };
    walk(shape, line, tiles, head_groups, columns, whole, split);
  }
}

/// Cuts the line into shares, and writes their items and the table of first items.
Handed hand_out_shares(const KernelShape& shape, const Limits& limits, const std::vector<Request>& requests,
                       const Batch& batch, std::int64_t team, std::int32_t* out) {
  const std::int64_t head_groups = limits.kv_heads / team, total = head_groups * batch.cost;
  const std::int64_t tiles = head_groups * batch.count, most = limits.workers / team;
  Line line(shape, {.cost = total, .tiles = tiles, .longest = tiles <= most ? batch.longest() : total}, most);
  std::vector<std::int64_t> counts;
  if (team > 1) counts = count_items(shape, line, batch, head_groups);
  Teams teams(shape, limits, team, std::move(counts), out);
  hand_out(shape, requests, batch, head_groups, team, line, teams);
  teams.finish();
  return {teams.items(), teams.slots(), total > 0 ? teams.workers() : 0, teams.busy()};
}

}  // namespace

Summary write_work_list(const KernelShape& shape, const Limits& limits, const Lengths& lengths,
                        std::span<std::int32_t> out) {
  if (const std::int64_t words = work_list_words(shape, limits); std::cmp_less(out.size(), words))
    throw Error(Errc::invalid_argument, "attention plan: the buffer has " + std::to_string(out.size() * 4) +
                                            " bytes; these limits need " + std::to_string(words * 4));
  const std::vector<Request> requests = checked_requests(shape, limits, lengths);
  const std::int64_t team = work_list::team_size(shape, limits.kv_heads, limits.workers),
                     head_groups = limits.kv_heads / team;
  // Causal is a right window of 0 already.
  const std::int64_t window_right = shape.causal ? -1 : std::min(lengths.window_right, kMost);
  const Batch batch(shape, {lengths.window_left, window_right}, requests);
  const std::int64_t total = head_groups * batch.cost;
  std::int64_t tokens = 0;
  for (const Request& r : requests) tokens += r.qo_len;

  std::memset(out.data() + counters_at(limits.workers), 0,
              4 * static_cast<std::size_t>(table_words(limits.workers)));
  const Handed handed = team == 1 && goes_in_waves(shape, limits, requests, head_groups * batch.count)
                            ? hand_out_in_waves(shape, limits, requests, batch.tiles, out.data())
                            : hand_out_shares(shape, limits, requests, batch, team, out.data());
  const std::int64_t requests_at = items_at(limits.workers) + handed.items * kItemWords;
  Header header{.made_for = made_for(shape.tile_rows, shape.tile_kv, shape.group, shape.causal,
                                     shape.tiles_together, window_right),
                .workers = narrow(limits.workers),
                .kv_heads = narrow(limits.kv_heads),
                .window_left = narrow(std::min(lengths.window_left, kMost)),
                .requests = narrow(lengths.requests),
                .tokens = narrow(tokens),
                .window_right = narrow(window_right),
                .slots = narrow(handed.slots),
                .requests_at = narrow(requests_at),
                .busy = narrow(handed.busy),
                .ticks = 0,
                .shape = {},
                .max_requests = 0,
                .max_tokens = 0};
  if (limits.on_device) {
    const work_list::ShapeWords words = work_list::pack(shape);
    std::ranges::copy(words.word, header.shape);
    header.max_requests = narrow(limits.max_requests);
    header.max_tokens = narrow(limits.max_tokens);
  }
  std::memcpy(out.data(), &header, sizeof header);
  if (!requests.empty())
    std::memcpy(out.data() + requests_at, requests.data(), requests.size() * sizeof(Request));
  return {requests_at + lengths.requests * kRequestWords, handed.items, handed.slots, handed.workers,
          total * team};
}

}  // namespace kiln::attention
