// Writes the work list of a batch in which each request has at most one tile of a kv head, as decode has. The words
// are the same as from writer.cuh, which writes every batch.
//
// With one tile, items need no search over cuts: places in the list follow from numbers of tiles and of cuts before
// them. Numbers fit 32 bits, because lines of 2^30 or more are left to writer.cuh. So the way through this header is a
// fraction of the instructions, which a kernel of a few microseconds executes once, one after the other.
//
// - load() reads the lengths, and finds where the tiles of each request begin on the line.
// - cut() finds the tile into which each cut falls (cutter.cuh says why it takes rounds).
// - count() counts the cuts inside tiles.
// - write() writes each item from its request and head, or from the cut at which it begins.
//
// A column is the tile of a request for a group of heads. A cut is inside its tile if there are kv blocks before it
// and after it.
#pragma once

#include "work_list/cutter.cuh"
#include "work_list/sums.h"

namespace kiln::work_list {

/// The tile of a request, and what comes before it.
struct alignas(8) OneTile {
  int line_at;      // where its tiles begin on the line
  unsigned before;  // requests before it that have a tile; << 16: those that have kv tokens
  int kv_begin, kv_end;
  KILN_BOTH bool live() const { return kv_end > kv_begin; }
};

/// A share, and the cut at its begin. The first share has no cut.
struct OneTileShare {
  int begun, seen;                  // as in Share
  int request;                      // the cut tile; -1: no cut
  int at;                           // kv blocks of the tile before the cut
  int column;                       // columns before that of the cut tile; all of them without a cut
  int begin;                        // column of the share's first item
  int begin_of_tiles;               // the first column whose tile begins in the share
  int live, live_of_tiles;          // columns before `begin` and before `begin_of_tiles` that have kv tokens
  int inside_before, tiles_before;  // cuts inside tiles before this one, and the tiles that they divide
  int first_inside;  // of the divided tile with this number: the cuts inside tiles before its first one

  KILN_BOTH bool inside() const { return begin < begin_of_tiles; }
  /// Items of the shares before it.
  KILN_BOTH int items_at() const { return begin + inside_before + (inside() ? 1 : 0); }
  KILN_BOTH int items(const OneTileShare& next) const { return next.begin_of_tiles - begin; }
};

/// The number of i in [1, n) with key(i) <= value. `step` is search_step() of n or more. REQUIRES: keys rise.
template <class Key>
KILN_BOTH int last_at_most(int n, int step, int value, const Key& key) {
  int out = 0;
  KILN_KEEP_LOOP
  for (; step > 0; step /= SEARCH_WAYS) {
    int steps = 0;  // the loads of a step do not wait for each other
    for (int i = 1; i < SEARCH_WAYS; ++i) {
      const int at = out + i * step;
      steps += at < n && key(at) <= value ? 1 : 0;
    }
    out += steps * step;
  }
  return out;
}

static_assert(sizeof(OneTile) <= sizeof(Place) && sizeof(OneTileShare) <= sizeof(Share),
              "the kernel keeps them in the same memory");

template <class Crew>
struct OneTileWriter {
  Crew crew;
  Common& common;
  AttentionRequest* requests;  // [lengths.requests]
  OneTile* tiles;              // [lengths.requests]
  OneTileShare* shares;        // [workers + 1]; after the last share comes one without a cut
  int* list;
  DeviceLengths lengths;
  /// A request and a kv head; `head` counts groups of heads, and the worker has this number in its team.
  struct Begin {
    int request, kv_head, head, member;
  };
  Begin own;  // with which this thread begins to write
  BatchMarks marks;
  TwoWords measured;  // the line, and the requests that have a tile; << 16: those that have kv tokens

  /// Reads what the writers need. What follows from the header is derived before the kernels before this one have
  /// ended, and again if they have changed it. So all blocks do the same. The tiles are right if operator() writes the list.
  KILN_BOTH void load(Cutter<Crew>& cutter, int workers) {
    for (;;) {
      cutter.prepare(workers);
      own = begin_at(crew.first());
      crew.wait();
      crew.few(Cutter<Crew>::CHECKED, [&](int w) { cutter.check(w); });
      if (lengths.requests == 0)
        crew.each(0, [](int) {});  // else the scan in measure() meets after the checks
      measured = measure();
      marks = common.marks;
      if (marks.changed == 0) return;
      crew.each(0, [](int) {});  // all threads have seen that the header has changed
    }
  }

  /// Writes the list. Returns false where the batch is not for this writer; nothing is written then. REQUIRES: load().
  KILN_BOTH bool operator()() {
    if ((marks.several | marks.large | marks.unfit) != 0) return false;
    const int head_groups = static_cast<int>(common.head_groups), total = static_cast<int>(measured.a);
    const int columns = head_groups * static_cast<int>(measured.b & 0xffff);
    const int live_columns = head_groups * static_cast<int>(measured.b >> 16);
    if (columns <= static_cast<int>(common.most_shares.value)) find_longest();
    const CuttingOf<int> cutting(common.shape, {total, columns, common.longest}, common.most_shares);
    if (cutting.alone)
      part(cutting, columns, live_columns);
    else
      cut(cutting, columns, live_columns);
    const FlagCounts counted = count(cutting);
    write(cutting, columns, counted);
    return true;
  }

 private:
  KILN_BOTH int blocks_before(int token) const {
    return static_cast<int>(divide(token, common.shape.by_tile_kv));
  }
  /// The kv tokens of the tile, as TileRanges::range(0).
  KILN_BOTH KvRange range(const AttentionRequest& of) const {
    const int shift = of.kv_len - of.qo_len;
    int begin = 0, end = of.kv_len;
    if (common.right >= 0) {
      end = shift + common.tokens_in_tile + (of.qo_len < common.right ? of.qo_len : common.right);
      end = end < 0 ? 0 : end < of.kv_len ? end : of.kv_len;
    }
    if (common.left >= 0 && common.left < of.kv_len) begin = shift < common.left ? 0 : shift - common.left;
    if (begin >= end) return {0, 0};
    return {blocks_before(begin) * static_cast<int>(common.shape.tile_kv), end};
  }
  KILN_BOTH int cost_of(const KvRange& of) const {
    const int blocks =
        blocks_before(of.end + static_cast<int>(common.shape.tile_kv) - 1) - blocks_before(of.begin);
    return (blocks < 1 ? 1 : blocks) + static_cast<int>(common.shape.tile_cost);
  }

  KILN_BOTH TwoWords measure() {
    return crew.template scan<TwoWords>(
        lengths.requests,
        [&](int i) {
          const AttentionRequest of = lengths.read(i);
          requests[i] = of;
          if (of.qo_len > common.tokens_of_tile) crew.mark(common.marks.several);
          TwoWords out{0, 0};
          bool fits =
              of.qo_len >= 0 && common.refusal == FAULT_NONE;  // else the lengths or the list are not allowed
          if (fits) {
            const KvRange kv = range(of);
            const int cost = cost_of(kv);
            tiles[i].kv_begin = kv.begin;
            tiles[i].kv_end = kv.end;
            fits = cost <= common.most_cost;
            if (of.qo_len > 0)
              out = {static_cast<unsigned>(cost) * static_cast<unsigned>(common.head_groups),
                     kv.end > kv.begin ? 0x10001u : 1u};
          }
          if (!fits) crew.mark(common.marks.unfit);
          return out;
        },
        [&](int i, const TwoWords& before) {
          tiles[i].line_at = static_cast<int>(before.a);
          tiles[i].before = before.b;
        });
  }

  KILN_BOTH void find_longest() {
    crew.each(lengths.requests, [&](int i) {
      if (requests[i].qo_len > 0) crew.raise(&common.longest, cost_of({tiles[i].kv_begin, tiles[i].kv_end}));
    });
  }

  KILN_BOTH int columns_before(int request) const {
    return static_cast<int>(common.head_groups) * static_cast<int>(tiles[request].before & 0xffff);
  }

  // ---- cut ----

  KILN_BOTH void clear_cut(int s, int place, int column, int live_columns) const {
    OneTileShare& out = shares[s];
    out.begun = place;
    out.request = -1;
    out.column = out.begin = out.begin_of_tiles = column;
    out.live = out.live_of_tiles = live_columns;
  }
  KILN_BOTH void put_cut(int s, int request, int head, int at, int kv_blocks) const {
    OneTileShare& out = shares[s];
    const OneTile& of = tiles[request];
    const int head_groups = static_cast<int>(common.head_groups), live = of.live() ? 1 : 0;
    const int behind = at == kv_blocks ? 1 : 0, begun = at > 0 ? 1 : 0;
    const int live_columns = head_groups * static_cast<int>(of.before >> 16) + live * head;
    out.request = request;
    out.at = at;
    out.column = head_groups * static_cast<int>(of.before & 0xffff) + head;
    out.begin = out.column + behind;
    out.begin_of_tiles = out.column + begun;
    out.live = live_columns + live * behind;
    out.live_of_tiles = live_columns + live * begun;
  }

  /// Each tile is a share of its own, so each cut is at the end of a tile.
  KILN_BOTH void part(const CuttingOf<int>& cutting, int columns, int live_columns) const {
    crew.each(cutting.shares + 1, [&](int s) {
      if (s == 0 || s == cutting.shares)
        return clear_cut(s, 0, s == 0 ? 0 : columns, s == 0 ? 0 : live_columns);
      const int r = last_at_most(lengths.requests, common.request_step, s - 1,
                                 [&](int i) { return columns_before(i); });
      put_cut(s, r, s - 1 - columns_before(r), 1, 1);
    });
  }

  KILN_BOTH void cut(const CuttingOf<int>& cutting, int columns, int live_columns) {
    bool first = true;
    KILN_KEEP_LOOP
    while (crew.any(cutting.shares + 1, [&](int s) {
      if (s == 0 || s == cutting.shares) {
        if (first) clear_cut(s, s == 0 ? 0 : cutting.total, s == 0 ? 0 : columns, s == 0 ? 0 : live_columns);
        return false;
      }
      return cut_at(cutting, s, first, columns, live_columns);
    }))
      first = false;
  }
  /// As Cutter::cut_at().
  KILN_BOTH bool cut_at(const CuttingOf<int>& cutting, int s, bool first, int columns,
                        int live_columns) const {
    OneTileShare& out = shares[s];
    const auto guess = [&](int share) { return share == 0 ? 0 : cutting.even(share) - cutting.tile_cost; };
    const int begun = first ? guess(s - 1) : *const_cast<const volatile int*>(&shares[s - 1].begun);
    if (!first && begun == out.seen) return false;
    const int even = cutting.even(s), late = begun + cutting.share, place = even < late ? late : even;
    const int before = first ? guess(s) : out.begun;
    int begins = cutting.total;
    if (place >= cutting.total) {
      clear_cut(s, cutting.total, columns, live_columns);
    } else {
      const int r =
          last_at_most(lengths.requests, common.request_step, place, [&](int i) { return tiles[i].line_at; });
      const int in_request = place - tiles[r].line_at;
      const int cost = cost_of({tiles[r].kv_begin, tiles[r].kv_end});
      int head = 0, in_head = in_request;
      if (common.head_groups > 1) {
        head = static_cast<int>(divide(in_request, cost));
        in_head -= head * cost;
      }
      const int begin = place - in_head, end = begin + cost, kv_blocks = cost - cutting.tile_cost;
      const int at = cutting.cut_tile(place, begin, end, begun);
      put_cut(s, r, head, at, kv_blocks);
      begins = at < kv_blocks ? begin + at : end;
    }
    out.seen = begun;
    *const_cast<volatile int*>(&out.begun) = begins;
    return begins != before;
  }

  // ---- count ----

  KILN_BOTH FlagCounts count(const CuttingOf<int>& cutting) {
    const auto is_first = [&](int s) {
      const OneTileShare &share = shares[s], &before = shares[s > 0 ? s - 1 : 0];
      return share.inside() && !(before.inside() && before.column == share.column);
    };
    constexpr unsigned INSIDE = 1, FIRST = 2, BUSY = 4;
    return crew.count(
        cutting.shares + 1,
        [&](int s) {
          const OneTileShare &share = shares[s], &next = shares[s < cutting.shares ? s + 1 : s];
          return (share.inside() ? INSIDE : 0) | (is_first(s) ? FIRST : 0) |
                 (next.live_of_tiles > share.live ? BUSY : 0);
        },
        [&](int s, const FlagCounts& before, unsigned flags) {
          shares[s].inside_before = before.first();
          shares[s].tiles_before = before.second();
          if (s == cutting.shares || (flags & FIRST) != 0)
            shares[before.second()].first_inside = before.first();
        });
  }

  // ---- write ----

  KILN_BOTH void put_item(int s, int nth, int member, AttentionItem& item) const {
    const OneTileShare& share = shares[s];
    const int items = share.items(shares[s + 1]), team = static_cast<int>(common.team);
    if (item.parts > 1) item.first_slot += member * item.parts;
    int* const first_items = AttentionWords::first_items(list, common.workers);
    int* const all = first_items + common.workers * AttentionWords::ITEM;
    crew.store(all + (share.items_at() * team + member * items + nth) * AttentionWords::ITEM, item);
    if (nth == 0) crew.store(first_items + (s * team + member) * AttentionWords::ITEM, item);
  }
  KILN_BOTH AttentionItem item_of(int request, int kv_head) const {
    const AttentionRequest& of = requests[request];
    const OneTile& tile = tiles[request];
    return {request,    kv_head,       0,           of.qo_begin, of.qo_len, of.kv_len,
            of.kv_base, tile.kv_begin, tile.kv_end, -1,          0,         1};
  }
  /// Makes a whole tile part `nth` of the divided tile with this number.
  KILN_BOTH void set_part(AttentionItem& item, int tile, int inside_before) const {
    const int first = shares[tile].first_inside;
    item.parts = shares[tile + 1].first_inside - first + 1;
    item.part = inside_before - first;
    item.first_slot = static_cast<int>(common.team) * (first + tile);
  }

  KILN_BOTH Begin begin_at(int i) const {
    const int kv_head = static_cast<int>(divide(i, common.by_requests)),
              head = static_cast<int>(divide(kv_head, common.by_team));
    return {i - kv_head * lengths.requests, kv_head, head, kv_head - head * static_cast<int>(common.team)};
  }
  /// The item with which a tile begins.
  KILN_BOTH void write_begin(const CuttingOf<int>& cutting, const Begin& of) const {
    AttentionItem item = item_of(of.request, of.kv_head);
    if (item.qo_len == 0) return;
    const int column = columns_before(of.request) + of.head;
    const int s = last_at_most(cutting.shares, common.share_step, column,
                               [&](int i) { return shares[i].begin_of_tiles; });
    const OneTileShare& next = shares[s + 1];
    if (next.inside() && next.column == column) {
      set_part(item, next.tiles_before, next.inside_before);
      item.kv_end = item.kv_begin + next.at * static_cast<int>(common.shape.tile_kv);
    }
    put_item(s, column - shares[s].begin, of.member, item);
  }
  /// The item that begins at a cut inside a tile.
  KILN_BOTH void write_rest(int s, int member) const {
    const OneTileShare &share = shares[s], &next = shares[s + 1];
    const int head = share.column - columns_before(share.request),
              tile_kv = static_cast<int>(common.shape.tile_kv);
    AttentionItem item = item_of(share.request, head * static_cast<int>(common.team) + member);
    const bool first = shares[share.tiles_before].first_inside == share.inside_before;
    set_part(item, share.tiles_before - (first ? 0 : 1), share.inside_before + 1);
    if (next.inside() && next.column == share.column) item.kv_end = item.kv_begin + next.at * tile_kv;
    item.kv_begin += share.at * tile_kv;
    put_item(s, 0, member, item);
  }

  KILN_BOTH void write(const CuttingOf<int>& cutting, int columns, const FlagCounts& counted) {
    const int n = lengths.requests, workers = common.workers, team = static_cast<int>(common.team);
    const int inside = counted.first(), divided = counted.second();
    const int items = (columns + inside) * team, begins = n * common.kv_heads,
              table = AttentionWords::table(workers);
    const int requests_at = static_cast<int>(AttentionWords::first_items(list, workers) - list) +
                            (workers + items) * AttentionWords::ITEM;
    crew.spread(begins + table + n + 1, [&](int i) {
      if (i < begins) return write_begin(cutting, i == crew.first() ? own : begin_at(i));
      i -= begins;
      if (i < table) {
        const int s = static_cast<int>(divide(i, common.by_team)), member = i - s * team;
        int at = items;
        if (s < cutting.shares) {
          at = shares[s].items_at() * team + member * shares[s].items(shares[s + 1]);
          if (shares[s].inside()) write_rest(s, member);
        }
        list[AttentionWords::HEADER + i] = at;
        AttentionWords::counters(list, workers)[i] = 0;
        return;
      }
      i -= table;
      if (i < n) {
        reinterpret_cast<AttentionRequest*>(list + requests_at)[i] = requests[i];
        return;
      }
      AttentionHeader& to = *reinterpret_cast<AttentionHeader*>(list);
      to.made_for = common.made_for;
      to.requests = n;
      to.tokens = static_cast<int>(common.tokens);
      to.slots = (inside + divided) * team;
      to.requests_at = requests_at;
      to.busy = static_cast<int>(counted.third) * team;
      to.ticks = 0;
    });
  }
};

}  // namespace kiln::work_list
