// Writes an attention work list on the device. The words are those that src/attention/plan.cpp writes for the
// same lengths. Tests compile this header for the host, with a crew of one thread.
//
// The host walks along the line of tiles. Here each of four steps is parallel.
// - measure() reads the lengths of the requests, and finds where the tiles of each request begin on the line.
// - cut() finds the tile into which each cut falls.
// - count() counts the items of each share, and finds where they begin in the list.
// - write() writes the items, each from its index alone.
//
// A cut depends on the one before it only where a share has begun late: it then has its full length from
// there. cut() first takes every cut at its even place, and then repeats those whose share begins elsewhere, until
// none moves. A list whose shares begin late one after the other takes as many rounds as it has such shares.
//
// Each block of the grid measures, cuts and counts for itself, and writes its part of the list. So the blocks
// need not wait for each other.
#pragma once

#include "attention/words.h"
#include "kiln/fault_words.h"
#include "work_list/line.h"
#include "work_list/tiles.h"

namespace kiln::work_list {

/// The lengths of a batch in device memory, as kiln_attention_lengths has them.
struct DeviceLengths {
  int requests, page_size;
  const int* qo_indptr;  // null: one token each
  const int* kv_indptr;
  const int* kv_len;         // may be null
  const int* last_page_len;  // may be null
};

/// A request as the writer keeps it. Numbers of tiles, columns and items count groups of heads, with one head for
/// each worker of a team.
struct Measured {
  Int line_at;     // where its tiles begin on the line
  int tiles_at;    // tiles of the requests before it
  int columns_at;  // items of the requests before it, if no tile was cut
  int live_at;     // columns of the requests before it that have kv tokens
  int qo_len, kv_len;
};

/// A share, and the cut at its begin. The first share has no cut.
struct Share {
  Int tile_begin;  // place of the cut tile on the line; the end of the line without a cut
  Int begun;       // where the share begins; inside a tile, tile_cost earlier
  Int seen;        // `begun` of the share before, when this cut was made
  int request;     // the cut tile; -1: no cut
  int head, tile;
  int at, kv_blocks;  // kv blocks of the tile before the cut, and all of them
  int items_at, items;
  int slots_at;
};

/// A sum over the requests, and over the shares.
struct RequestSum {
  Int line, tokens;
  int tiles, columns, live, refused;
  KILN_BOTH RequestSum operator+(const RequestSum& b) const {
    return {line + b.line,       tokens + b.tokens, tiles + b.tiles,
            columns + b.columns, live + b.live,     refused | b.refused};
  }
};
struct ShareSum {
  int items, slots, busy;
  KILN_BOTH ShareSum operator+(const ShareSum& b) const {
    return {items + b.items, slots + b.slots, busy + b.busy};
  }
};

/// Values that all threads of a block share.
struct Common {
  Shape shape;
  Slope slope;
  Int head_groups, team, most_shares, max_tokens;
  int workers, kv_heads, window_left, max_requests, longest;
  unsigned refusal;
  int starts[Slope::MOST_IN_TABLE];
  Int sums[Slope::MOST_IN_TABLE + 1];
};

/// A crew runs functions on the threads of a block:
/// - each(n, f): f(i) for all i below n; returns when all are done, and shows what they wrote.
/// - any(n, f): as each(), and returns whether an f(i) was true.
/// - spread(n, f): f(i) for the part of all i that this block of the grid has.
/// - scan<Sum>(n, value, put): put(i, the sum of value(j) for all j < i); returns the sum of all.
/// - raise(word, v): makes *word at least v.
/// - store(to, item): writes 12 words, aligned to 16 bytes.
template <class Crew>
struct Writer {
  Crew crew;
  Common& common;
  Measured* requests;  // [lengths.requests + 1]
  Share* shares;       // [workers + 1]; after the last share comes one without a cut
  int* list;
  DeviceLengths lengths;

  /// Writes the list, or returns the FaultReason for which it does not.
  KILN_BOTH unsigned operator()(int workers) {
    crew.each(1, [&](int) { read_header(workers); });
    if (common.refusal != FAULT_NONE) return common.refusal;
    const RequestSum all = measure();
    if (all.refused) return FAULT_LENGTHS;
    if (all.tokens > common.max_tokens) return FAULT_LIMITS;
    if (all.tiles <= common.most_shares) find_longest(all.tiles);
    const Cutting cutting(common.shape, {all.line, all.tiles, common.longest}, common.most_shares);
    cutting.alone ? part(cutting) : cut(cutting);
    const ShareSum counted = count(cutting, all);
    write(cutting, all, counted);
    return FAULT_NONE;
  }

 private:
  KILN_BOTH const AttentionHeader& header() const { return *reinterpret_cast<const AttentionHeader*>(list); }

  KILN_BOTH void read_header(int workers) {
    const AttentionHeader& from = header();
    Common& out = common;
    out.workers = from.workers;
    out.kv_heads = from.kv_heads;
    out.window_left = from.window_left;
    out.max_requests = from.max_requests;
    out.max_tokens = from.max_tokens;
    out.longest = 0;
    out.refusal = FAULT_NONE;
    if (!unpack({{from.shape[0], from.shape[1], from.shape[2]}}, out.shape) || out.workers < 1 ||
        out.kv_heads < 1) {
      out.refusal = FAULT_NO_LIST;
      return;
    }
    if (lengths.requests > out.max_requests || out.workers != workers) {
      out.refusal = FAULT_LIMITS;
      return;
    }
    out.slope = Slope(out.shape);
    out.team = team_size(out.shape, out.kv_heads, out.workers);
    out.head_groups = divide(out.kv_heads, out.team);
    out.most_shares = divide(out.workers, out.team);
  }

  // ---- measure ----

  /// The lengths of request i. Returns false if they are not allowed.
  KILN_BOTH KILN_APART bool read(int i, AttentionRequest& out) const {
    constexpr Int MOST = (1 << 30) - 1;
    const Int qo_begin = lengths.qo_indptr ? lengths.qo_indptr[i] : i;
    const Int qo_end = lengths.qo_indptr ? lengths.qo_indptr[i + 1] : i + 1;
    const Int kv_begin = lengths.kv_indptr[i], held = lengths.kv_indptr[i + 1] - kv_begin;
    Int kv_len = held;
    bool right = qo_begin >= 0 && qo_end >= qo_begin && kv_begin >= 0 && held >= 0;
    if (lengths.kv_len) {
      kv_len = lengths.kv_len[i];
      right = right && kv_len <= (lengths.page_size > 0 ? held * lengths.page_size : held);
    } else if (lengths.page_size > 0) {
      const Int last = held > 0 ? lengths.last_page_len[i] : lengths.page_size;
      right = right && 1 <= last && last <= lengths.page_size;
      kv_len = held > 0 ? (held - 1) * lengths.page_size + last : 0;
    }
    out = {static_cast<int>(qo_begin), static_cast<int>(qo_end - qo_begin), static_cast<int>(kv_begin),
           static_cast<int>(kv_len)};
    return right && kv_len >= 0 && kv_len <= MOST && qo_end - qo_begin <= MOST;
  }
  KILN_BOTH TileRanges tiles_of(const Measured& of) const {
    return TileRanges(common.shape, common.window_left, of);
  }
  // Few batches need the sums over many tiles. They are kept out of the other code, which has to be short: a
  // kernel of a few microseconds runs all of it for the first time.
  KILN_BOTH KILN_APART Int cost_of_many(const Measured& of) const {
    return Tiles(common.shape, common.slope, common.window_left, of).cost();
  }
  KILN_BOTH KILN_APART Tiles::Reach within_many(const Measured& of, Int cost) const {
    return Tiles(common.shape, common.slope, common.window_left, of).within(cost, {0, 0});
  }
  /// The cost of all tiles of one group of heads.
  KILN_BOTH Int cost_of(const Measured& of, const TileRanges& tiles) const {
    if (tiles.count() > 1) return cost_of_many(of);
    return tiles.count() * (common.shape.tile_cost + tiles.kv_blocks(0));
  }
  KILN_BOTH bool one_item(const TileRanges& tiles) const {
    return common.shape.tiles_together || tiles.count() == 1;
  }
  /// Items of a column whose tiles are whole. A column is what a request has for one group of heads.
  KILN_BOTH int items_of_column(const TileRanges& tiles) const {
    const int count = static_cast<int>(tiles.count());
    return one_item(tiles) && count > 1 ? 1 : count;
  }
  KILN_BOTH RequestSum measure() {
    const Shape& shape = common.shape;
    const bool many = crew.any(lengths.requests, [&](int i) {
      AttentionRequest request;
      const bool right = read(i, request);
      requests[i].qo_len = right ? request.qo_len : -1;
      requests[i].kv_len = request.kv_len;
      return right && request.qo_len > 0 && request.qo_len * shape.group > shape.tile_rows;
    });
    if (many && common.slope.run <= Slope::MOST_IN_TABLE) make_tables();
    const RequestSum all = crew.template scan<RequestSum>(
        lengths.requests,
        [&](int i) {
          // Packed rows of more tokens than the limit might not fit 31 bits.
          const Int tokens = requests[i].qo_len;
          if (tokens < 0) return RequestSum{0, 0, 0, 0, 0, 1};
          if (tokens > common.max_tokens) return RequestSum{0, tokens, 0, 0, 0, 0};
          const TileRanges tiles = tiles_of(requests[i]);
          const Int heads = common.head_groups, count = tiles.count();
          const bool live = count > 0 && tiles.has_kv(one_item(tiles) ? 0 : count - 1);
          return RequestSum{
              heads * cost_of(requests[i], tiles), tokens,
              static_cast<int>(heads * count),     static_cast<int>(heads * items_of_column(tiles)),
              static_cast<int>(live ? heads : 0),  0};
        },
        [&](Int i, const RequestSum& before) {
          requests[i].line_at = before.line;
          requests[i].tiles_at = before.tiles;
          requests[i].columns_at = before.columns;
          requests[i].live_at = before.live;
        });
    crew.each(1,
              [&](int) { requests[lengths.requests] = {all.line, all.tiles, all.columns, all.live, 0, 0}; });
    return all;
  }

  KILN_BOTH void make_tables() {
    Common& to = common;
    const Int run = to.slope.run, rise = to.slope.rise;
    crew.each(static_cast<int>(run) + 1, [&](int i) {
      if (i < run) to.starts[rise * i % run] = static_cast<int>(i);
      to.sums[i] = i == 0 ? 0
                          : static_cast<Int>(floor_sum(static_cast<Unsigned>(i), static_cast<Unsigned>(run),
                                                       static_cast<Unsigned>(rise), 0));
    });
    crew.each(1, [&](int) {
      to.slope.starts = to.starts;
      to.slope.sums = to.sums;
    });
  }

  // ---- cut ----

  /// The last request whose `member` is at most `value`. REQUIRES: value is below that of the end.
  template <class T>
  KILN_BOTH int request_at(T Measured::*member, T value) const {
    int low = 0;
    KILN_KEEP_LOOP
    for (int high = lengths.requests; high - low > 1;) {
      const int middle = (low + high) / 2;
      (requests[middle].*member <= value ? low : high) = middle;
    }
    return low;
  }

  /// The largest cost of a tile. Only the first head of each request counts, since the other heads are alike.
  KILN_BOTH void find_longest(int tiles_of_all) {
    crew.each(tiles_of_all, [&](int i) {
      const Measured& of = requests[request_at(&Measured::tiles_at, static_cast<int>(i))];
      const TileRanges tiles = tiles_of(of);
      const int tile = i - of.tiles_at;
      if (tile < tiles.count())
        crew.raise(&common.longest, static_cast<int>(tiles.kv_blocks(tile) + common.shape.tile_cost));
    });
  }

  /// Each tile is a share of its own, so each cut is at the end of a tile.
  KILN_BOTH void part(const Cutting& cutting) {
    crew.each(static_cast<int>(cutting.shares), [&](int s) {
      Share& out = shares[s];
      out.request = -1;
      out.tile_begin = -1;
      if (s == 0) return;
      const Int r = request_at(&Measured::tiles_at, static_cast<int>(s - 1));
      const TileRanges tiles = tiles_of(requests[r]);
      const Int nth = s - 1 - requests[r].tiles_at, head = divide(nth, tiles.count());
      out.tile_begin = s - 1;  // any numbers that rise
      out.request = static_cast<int>(r);
      out.head = static_cast<int>(head);
      out.tile = static_cast<int>(nth - head * tiles.count());
      out.kv_blocks = out.at = static_cast<int>(tiles.kv_blocks(out.tile));
    });
  }

  KILN_BOTH void cut(const Cutting& cutting) {
    crew.each(static_cast<int>(cutting.shares), [&](int s) {
      Share& out = shares[s];
      out.begun = cutting.even(s);
      out.seen = -1;
      out.request = -1;
      out.tile_begin = s == 0 ? -1 : cutting.total;
    });
    KILN_KEEP_LOOP
    while (crew.any(static_cast<int>(cutting.shares) - 1, [&](int i) { return cut_at(cutting, i + 1); })) {
    }
  }

  /// Makes the cut at which share s begins. Returns true if the share now begins elsewhere than before. The
  /// thread of the share before may write its `begun` at the same time. That thread then returns true, and this cut
  /// is made again.
  KILN_BOTH bool cut_at(const Cutting& cutting, int s) const {
    Share& out = shares[s];
    const Int begun = *const_cast<const volatile Int*>(&shares[s - 1].begun);
    if (begun == out.seen) return false;
    const Int cut = larger(cutting.even(s), begun + cutting.share);
    out.seen = begun;
    Int begins = cutting.total;
    if (cut >= cutting.total) {
      out.request = -1;
      out.tile_begin = cutting.total;
    } else {
      find_tile(cut, out);
      const Int end = out.tile_begin + out.kv_blocks + cutting.tile_cost;
      out.at = static_cast<int>(cutting.cut_tile(cut, out.tile_begin, end, begun));
      begins = out.at < out.kv_blocks ? out.tile_begin + out.at : end;
    }
    if (begins == out.begun) return false;
    *const_cast<volatile Int*>(&out.begun) = begins;
    return true;
  }

  /// Finds the tile at this place of the line. REQUIRES: 0 <= place < the line's length.
  KILN_BOTH void find_tile(Int place, Share& out) const {
    if (out.request >= 0 && out.tile_begin <= place &&
        place < out.tile_begin + out.kv_blocks + common.shape.tile_cost)
      return;
    Int r = out.request;
    if (r < 0 || !(requests[r].line_at <= place && place < requests[r + 1].line_at))
      r = request_at(&Measured::line_at, place);
    const TileRanges tiles = tiles_of(requests[r]);
    const Int in_request = place - requests[r].line_at;
    const Int of_head = divide_any(requests[r + 1].line_at - requests[r].line_at, common.head_groups);
    const Int head = divide_any(in_request, of_head), in_head = in_request - head * of_head;
    Tiles::Reach before{0, 0};
    if (tiles.count() > 1) before = within_many(requests[r], in_head);
    out.request = static_cast<int>(r);
    out.head = static_cast<int>(head);
    out.tile = static_cast<int>(before.tiles);
    out.tile_begin = place - in_head + before.cost;
    out.kv_blocks = static_cast<int>(tiles.kv_blocks(before.tiles));
  }

  // ---- count ----

  /// Items of `many` whole tiles of a column that follow each other.
  KILN_BOTH int items_of_run(const TileRanges& tiles, int many) const {
    return many > 1 && one_item(tiles) ? 1 : many;
  }
  /// A place between two tiles of a column, for counting items: the items of whole tiles before the tile and
  /// after it.
  struct Around {
    int column_at;  // items of the columns before the tile's column
    int before, after, of_column;
  };
  KILN_BOTH Around around(const Share& cut, const TileRanges& tiles) const {
    const int each = items_of_column(tiles), after = static_cast<int>(tiles.count()) - 1 - cut.tile;
    return {requests[cut.request].columns_at + cut.head * each, items_of_run(tiles, cut.tile),
            items_of_run(tiles, after), each};
  }

  /// The items between two cut tiles, of which either may be missing.
  struct Middle {
    bool same_tile, same_column;
    int first;      // items of the column of the first tile, after that tile
    int full;       // items of whole columns
    int last;       // items of the column of the second tile, before that tile
    int column_at;  // items of the columns before the whole columns
    KILN_BOTH int items() const { return first + full + last; }
  };
  KILN_BOTH KILN_APART Middle middle(const Share& from, const Share& to, int columns) const {
    Middle out{false, false, 0, columns, 0, 0};
    if (from.request >= 0) {
      const TileRanges tiles = tiles_of(requests[from.request]);
      const Around at = around(from, tiles);
      if (to.request == from.request && to.head == from.head) {
        const int tiles_between = to.tile - from.tile - 1;
        out.same_column = true;
        out.same_tile = tiles_between < 0;
        out.first = out.same_tile ? 0 : items_of_run(tiles, tiles_between);
        out.full = 0;
        return out;
      }
      out.first = at.after;
      out.column_at = at.column_at + at.of_column;
    }
    if (to.request >= 0) {
      const Around at = around(to, tiles_of(requests[to.request]));
      out.last = at.before;
      out.full = at.column_at - out.column_at;
    } else {
      out.full = columns - out.column_at;
    }
    return out;
  }
  /// Columns that have kv tokens, before this one.
  KILN_BOTH int live_before(int request, int head) const {
    const Measured& of = requests[request];
    const bool live = requests[request + 1].live_at > of.live_at;
    return of.live_at + (live ? head : 0);
  }
  /// Returns whether an item between two cut tiles has kv tokens. Of an item with several tiles, only the first
  /// tile counts.
  KILN_BOTH bool is_live(const Share& from, const Share& to, const Middle& of) const {
    int begin = 0, end = requests[lengths.requests].live_at;
    if (from.request >= 0) {
      const TileRanges tiles = tiles_of(requests[from.request]);
      const int behind = of.same_column ? to.tile : static_cast<int>(tiles.count());
      if (of.first > 0 && tiles.has_kv(one_item(tiles) ? from.tile + 1 : behind - 1)) return true;
      if (of.same_column) return false;
      begin = live_before(from.request, from.head + 1);
    }
    if (to.request >= 0) {
      const TileRanges tiles = tiles_of(requests[to.request]);
      if (of.last > 0 && tiles.has_kv(one_item(tiles) ? 0 : to.tile - 1)) return true;
      end = live_before(to.request, to.head);
    }
    return end > begin;
  }

  KILN_BOTH static bool begins_in_tile(const Share& share) {
    return share.request >= 0 && share.at < share.kv_blocks;
  }
  /// Returns whether a share has the begin of the tile that the next cut divides, which another cut does not.
  KILN_BOTH static bool ends_in_tile(const Share& next, const Middle& of) {
    return next.request >= 0 && !of.same_tile && next.at > 0;
  }

  /// The cuts [first, end) that fall into one tile.
  struct Cuts {
    int first, end;
  };
  /// The cuts that fall into the tile of cut s.
  KILN_BOTH KILN_APART Cuts cuts_of(const Cutting& cutting, int s) const {
    const Int tile = shares[s].tile_begin;
    Cuts out{s, s + 1};
    KILN_KEEP_LOOP
    for (int low = 0; out.first - low > 1;) {  // share `low` begins in a tile before
      const int middle = (low + out.first) / 2;
      (shares[middle].tile_begin < tile ? low : out.first) = middle;
    }
    KILN_KEEP_LOOP
    for (int high = static_cast<int>(cutting.shares); high - out.end > 0;) {
      const int middle = (out.end + high) / 2;
      if (shares[middle].tile_begin > tile || shares[middle].request < 0)
        high = middle;
      else
        out.end = middle + 1;
    }
    return out;
  }
  /// The parts of the tile that these cuts divide.
  KILN_BOTH int parts_of(const Cuts& cuts) const {
    const Share &first = shares[cuts.first], &last = shares[cuts.end - 1];
    const Int idle = (first.at == 0 ? 1 : 0) + (last.at == last.kv_blocks ? 1 : 0);
    return static_cast<int>(1 + cuts.end - cuts.first - idle);
  }

  KILN_BOTH ShareSum count(const Cutting& cutting, const RequestSum& all) {
    crew.each(1, [&](int) {  // after the last share
      shares[cutting.shares].request = -1;
      shares[cutting.shares].tile_begin = cutting.total;
    });
    return crew.template scan<ShareSum>(
        static_cast<int>(cutting.shares),
        [&](int s) {
          Share& share = shares[s];
          share.items = 0;
          if (all.tiles == 0 || (s > 0 && share.request < 0)) return ShareSum{0, 0, 0};
          const Share& next = shares[s + 1];
          const Middle between = middle(share, next, all.columns);
          const bool begins = begins_in_tile(share), ends = ends_in_tile(next, between);
          share.items = static_cast<int>(begins + between.items() + ends);
          const auto tile_has_kv = [&](const Share& cut) {
            return tiles_of(requests[cut.request]).has_kv(cut.tile);
          };
          const bool busy = (begins && tile_has_kv(share)) || (ends && tile_has_kv(next)) ||
                            (!between.same_tile && is_live(share, next, between));
          int parts = 0;
          if (s > 0) {
            const Cuts cuts = cuts_of(cutting, s);
            if (cuts.first == s) parts = parts_of(cuts);
          }
          return ShareSum{share.items, parts > 1 ? static_cast<int>(parts * common.team) : 0,
                          busy ? static_cast<int>(common.team) : 0};
        },
        [&](Int s, const ShareSum& before) {
          shares[s].items_at = before.items;
          shares[s].slots_at = before.slots;
        });
  }

  // ---- write ----

  /// Where an item is: the tiles [tile, tile + many) of a request and a group of heads.
  struct Place {
    int request, head, tile, many;
    int cut;  // the cut whose tile this is, or a piece of it; -1: the item has only whole tiles
  };
  KILN_BOTH static Place place_of(const Share& cut, int number) {
    return {cut.request, cut.head, cut.tile, 1, number};
  }
  /// Item `nth` of a share.
  KILN_BOTH Place place_of_item(int s, int nth, int columns) const {
    const Share &share = shares[s], &next = shares[s + 1];
    if (begins_in_tile(share) && nth-- == 0) return place_of(share, s);
    const Middle between = middle(share, next, columns);
    if (nth >= between.items()) return place_of(next, s + 1);
    Place out{share.request, share.head, share.tile + 1 + nth, 0, -1};
    int end = next.tile;  // of the last item that is made of several tiles
    if (nth >= between.first + between.full) {
      out.request = next.request;
      out.head = next.head;
      out.tile = nth - between.first - between.full;
    } else if (nth >= between.first) {
      const int at = between.column_at + nth - between.first;
      out.request = request_at(&Measured::columns_at, at);
      out.tile = at - requests[out.request].columns_at;  // of all heads
      end = -1;
    } else if (!between.same_column) {
      end = 0;
    }
    const TileRanges tiles = tiles_of(requests[out.request]);
    if (end < 0) {
      const int each = items_of_column(tiles);
      out.head = static_cast<int>(divide(out.tile, each));
      out.tile -= out.head * each;
    }
    if (end <= 0) end = static_cast<int>(tiles.count());
    out.many = one_item(tiles) ? end - out.tile : 1;
    return out;
  }

  /// Item `nth` of a share, as the first worker of the team has it.
  KILN_BOTH AttentionItem item_of(const Cutting& cutting, int s, int nth, int columns) const {
    const Place place = place_of_item(s, nth, columns);
    AttentionRequest of;
    read(place.request, of);
    const KvRange range = tiles_of(requests[place.request]).range(place.tile);
    AttentionItem out = {place.request,
                         static_cast<int>(place.head * common.team),
                         static_cast<int>(place.tile * common.shape.tile_rows),
                         of.qo_begin,
                         of.qo_len,
                         of.kv_len,
                         of.kv_base,
                         range.begin,
                         range.end,
                         -place.many,
                         0,
                         1};
    if (place.cut >= 0) take_part(cutting, place.cut, s, out);
    return out;
  }

  /// Turns a whole tile into the part that share s has of it. `cut` is the cut at which the share begins or ends.
  KILN_BOTH void take_part(const Cutting& cutting, int cut, int s, AttentionItem& tile) const {
    const Cuts cuts = cuts_of(cutting, cut);
    const int parts = parts_of(cuts), begin = tile.kv_begin;
    if (parts == 1) return;
    const auto at_cut = [&](int c) { return static_cast<int>(begin + shares[c].at * common.shape.tile_kv); };
    tile.parts = parts;
    tile.first_slot = shares[cuts.first].slots_at;
    if (s + 1 < cuts.end && shares[s + 1].at < shares[cut].kv_blocks) tile.kv_end = at_cut(s + 1);
    if (s < cuts.first) return;
    tile.part = s - cuts.first + (shares[cuts.first].at == 0 ? 0 : 1);
    tile.kv_begin = at_cut(s);
  }

  KILN_BOTH void write(const Cutting& cutting, const RequestSum& all, const ShareSum& counted) {
    const int team = static_cast<int>(common.team), workers = common.workers;
    int* const first_items = AttentionWords::first_items(list, workers);
    int* const items = first_items + workers * AttentionWords::ITEM;
    const Int requests_at = items + static_cast<Int>(counted.items) * team * AttentionWords::ITEM - list;
    crew.spread(counted.items * team, [&](int i) {
      const int nth_of_all = static_cast<int>(divide(i, team)), member = i - nth_of_all * team;
      int s = 0;
      KILN_KEEP_LOOP
      for (int high = static_cast<int>(cutting.shares); high - s > 1;) {
        const int middle = (s + high) / 2;
        (shares[middle].items_at <= nth_of_all ? s : high) = middle;
      }
      const Share& share = shares[s];
      const int nth = nth_of_all - share.items_at;
      AttentionItem out = item_of(cutting, s, nth, all.columns);
      out.kv_head += static_cast<int>(member);
      if (out.parts > 1) out.first_slot += static_cast<int>(member * out.parts);
      const int at = share.items_at * team + member * share.items + nth;
      crew.store(items + static_cast<Int>(at) * AttentionWords::ITEM, out);
      if (nth == 0) crew.store(first_items + (s * team + member) * AttentionWords::ITEM, out);
    });
    const int table = AttentionWords::table(workers);
    crew.spread(table, [&](int i) {
      const int s = static_cast<int>(divide(i, team)), member = i - s * team;
      list[AttentionWords::HEADER + i] = static_cast<int>(
          s < cutting.shares ? shares[s].items_at * team + member * shares[s].items : counted.items * team);
      AttentionWords::counters(list, workers)[i] = 0;
    });
    crew.spread(lengths.requests, [&](int i) {
      AttentionRequest of;
      read(i, of);
      reinterpret_cast<AttentionRequest*>(list + requests_at)[i] = of;
    });
    crew.spread(1, [&](int) {
      const Shape& shape = common.shape;
      AttentionHeader& to = *reinterpret_cast<AttentionHeader*>(list);
      to.made_for = static_cast<int>(
          attention_made_for(static_cast<unsigned>(shape.tile_rows), static_cast<unsigned>(shape.tile_kv),
                             static_cast<unsigned>(shape.group), shape.causal, shape.tiles_together));
      to.requests = lengths.requests;
      to.tokens = static_cast<int>(all.tokens);
      to.items = static_cast<int>(counted.items * team);
      to.slots = counted.slots;
      to.requests_at = static_cast<int>(requests_at);
      to.busy = counted.busy;
      to.ticks = 0;
    });
  }
};

}  // namespace kiln::work_list
