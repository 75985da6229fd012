// The first two steps of the device's writer of work lists (writer.cuh): the lengths of a batch, and the cuts of its line.
// - load() reads the lengths of the requests, and the shape and limits that the list in the buffer names.
// - measure() finds where the tiles of each request begin on the line.
// - cut() finds the tile into which each cut falls.
//
// A cut depends on the one before it only where a share has begun late: it then has its full length from
// there. cut() first takes every share to begin at its even place, and then repeats the cuts whose share begins
// elsewhere, until none moves. A list whose shares begin late one after the other takes as many rounds as it has such
// shares.
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
  Int line_at;           // where its tiles begin on the line
  int tiles_at;          // tiles of the requests before it
  int columns_at;        // items of the requests before it, if no tile was cut
  int live_at;           // columns of the requests before it that have kv tokens
  int qo_begin, qo_len;  // as in AttentionRequest; qo_len is -1 if the lengths are not allowed
  int kv_base, kv_len;
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

/// A sum over the requests, and over the steps of a slope.
struct RequestSum {
  Int line;
  int tiles, columns, live;
  KILN_BOTH RequestSum operator+(const RequestSum& b) const {
    return {line + b.line, tiles + b.tiles, columns + b.columns, live + b.live};
  }
};
struct StepSum {
  Int steps;
  KILN_BOTH StepSum operator+(const StepSum& b) const { return {steps + b.steps}; }
};

/// Values that all threads of a block share.
struct Common {
  TileShape shape;
  Slope slope;  // set if a request may have several tiles
  Divisor by_team;
  Int head_groups, team, most_shares, max_tokens, tokens;
  Windows windows;
  int workers, kv_heads, longest;
  unsigned refusal;  // a FaultReason found in the list that the buffer holds
  int refused;       // the largest FaultReason found in the lengths
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
struct Cutter {
  Crew crew;
  Common& common;
  Measured* requests;  // [lengths.requests + 1]
  Share* shares;       // [workers + 1]; after the last share comes one without a cut
  int* list;
  DeviceLengths lengths;

  // ---- load ----

  /// Reads all that the writer needs from device memory. Different threads read the list and the lengths, so they
  /// wait for memory once. Returns whether a request may have several tiles.
  KILN_BOTH bool load(int workers) {
    const int n = lengths.requests, derives = n, slopes = n + 32;
    const bool several = crew.any(n + 33, [&](int i) {
      if (i < n) return read(i, requests[i]) && requests[i].qo_len > 1;
      if (i != derives && i != slopes) return false;
      const AttentionHeader from = *reinterpret_cast<const AttentionHeader*>(list);
      Shape shape;
      const bool known = unpack({{from.shape[0], from.shape[1], from.shape[2]}}, shape);
      if (i == derives) derive(from, known, shape, workers);
      const bool slope = known && (lengths.qo_indptr || shape.group > shape.tile_rows);
      if (i == slopes && slope) set_slope(shape);
      return slope && shape.group > shape.tile_rows;
    });
    const Shape& shape = common.shape;
    return several && common.refusal == FAULT_NONE &&
           crew.any(n, [&](int i) { return requests[i].qo_len * shape.group > shape.tile_rows; });
  }

  KILN_BOTH void set_slope(const Shape& shape) {
    common.slope = Slope(shape);
    if (common.slope.run > Slope::MOST_IN_TABLE) return;
    common.slope.starts = common.starts;
    common.slope.sums = common.sums;
  }

  KILN_BOTH void derive(const AttentionHeader& from, bool known, const Shape& shape, int workers) {
    Common& out = common;
    out.workers = from.workers;
    out.kv_heads = from.kv_heads;
    out.windows = {from.window_left, from.window_right};
    out.max_tokens = from.max_tokens;
    out.longest = 0;
    out.refused = FAULT_NONE;
    out.refusal = !known || out.workers < 1 || out.kv_heads < 1                    ? FAULT_NO_LIST
                  : lengths.requests > from.max_requests || out.workers != workers ? FAULT_LIMITS
                                                                                   : FAULT_NONE;
    if (out.refusal != FAULT_NONE) return;
    const int* const qo = lengths.qo_indptr;
    out.tokens = qo ? static_cast<Int>(qo[lengths.requests]) - qo[0] : lengths.requests;
    out.shape = TileShape(shape);
    out.team = team_size(shape, out.kv_heads, out.workers);
    out.by_team = Divisor(out.team);
    out.head_groups = divide(out.kv_heads, out.by_team);
    out.most_shares = divide(out.workers, out.by_team);
  }

  /// The lengths of request i. Returns false if they are not allowed.
  KILN_BOTH bool read(int i, Measured& out) const {
    constexpr Int MOST = (1 << 30) - 1;
    // The loads come first, so that none of them waits for another one.
    const bool paged = lengths.page_size > 0;
    const Int qo_begin = lengths.qo_indptr ? lengths.qo_indptr[i] : i;
    const Int qo_end = lengths.qo_indptr ? lengths.qo_indptr[i + 1] : i + 1;
    const Int kv_begin = lengths.kv_indptr[i], kv_end = lengths.kv_indptr[i + 1];
    const Int given = lengths.kv_len ? lengths.kv_len[i] : 0;
    const Int last_page = !lengths.kv_len && paged ? lengths.last_page_len[i] : 0;
    const Int held = kv_end - kv_begin;
    Int kv_len = held;
    bool right = qo_begin >= 0 && qo_end >= qo_begin && kv_begin >= 0 && held >= 0;
    if (lengths.kv_len) {
      kv_len = given;
      right = right && kv_len <= (paged ? held * lengths.page_size : held);
    } else if (paged) {
      const Int last = held > 0 ? last_page : lengths.page_size;
      right = right && 1 <= last && last <= lengths.page_size;
      kv_len = held > 0 ? (held - 1) * lengths.page_size + last : 0;
    }
    right = right && kv_len >= 0 && kv_len <= MOST && qo_end - qo_begin <= MOST;
    out.qo_begin = static_cast<int>(qo_begin);
    out.qo_len = right ? static_cast<int>(qo_end - qo_begin) : -1;
    out.kv_base = static_cast<int>(kv_begin);
    out.kv_len = static_cast<int>(kv_len);
    return right;
  }

  // ---- measure ----

  KILN_BOTH TileRanges tiles_of(const Measured& of) const {
    return TileRanges(common.shape, common.windows, of);
  }
  // Few batches need the sums over many tiles. They are kept out of the other code, which has to be short: a
  // kernel of a few microseconds runs all of it for the first time.
  KILN_BOTH KILN_APART Int cost_of_many(const Measured& of) const {
    return Tiles(common.shape, common.slope, common.windows, of).cost();
  }
  KILN_BOTH KILN_APART Tiles::Reach within_many(const Measured& of, Int cost) const {
    return Tiles(common.shape, common.slope, common.windows, of).within(cost, {0, 0});
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
  KILN_BOTH RequestSum measure(bool many) {
    if (many && common.slope.sums) make_tables();
    return crew.template scan<RequestSum>(
        lengths.requests + 1,  // the last sum is that of all
        [&](int i) {
          if (i == lengths.requests) {
            if (common.tokens > common.max_tokens) crew.raise(&common.refused, FAULT_LIMITS);
            return RequestSum{};
          }
          // Packed rows of more tokens than the limit might not fit 31 bits.
          const Int tokens = requests[i].qo_len;
          if (tokens < 0 || tokens > common.max_tokens) {
            crew.raise(&common.refused, tokens < 0 ? FAULT_LENGTHS : FAULT_LIMITS);
            return RequestSum{};
          }
          const TileRanges tiles = tiles_of(requests[i]);
          const Int heads = common.head_groups, count = tiles.count();
          const bool live = count > 0 && tiles.has_kv(one_item(tiles) ? 0 : count - 1);
          return RequestSum{heads * cost_of(requests[i], tiles), static_cast<int>(heads * count),
                            static_cast<int>(heads * items_of_column(tiles)),
                            static_cast<int>(live ? heads : 0)};
        },
        [&](Int i, const RequestSum& before) {
          requests[i].line_at = before.line;
          requests[i].tiles_at = before.tiles;
          requests[i].columns_at = before.columns;
          requests[i].live_at = before.live;
        });
  }

  /// Fills the tables of the slope.
  KILN_BOTH void make_tables() {
    const int run = static_cast<int>(common.slope.run), rise = static_cast<int>(common.slope.rise);
    crew.template scan<StepSum>(
        run + 1,
        [&](int i) {
          const Int steps = divide(static_cast<Int>(rise) * i, run);
          if (i < run) common.starts[rise * i - steps * run] = i;
          return StepSum{steps};
        },
        [&](int i, const StepSum& before) { common.sums[i] = before.steps; });
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

  KILN_BOTH void clear_cut(int s, Int tile_begin) const {
    shares[s].request = -1;
    shares[s].tile_begin = tile_begin;
  }

  /// Each tile is a share of its own, so each cut is at the end of a tile.
  KILN_BOTH void part(const Cutting& cutting) {
    crew.each(static_cast<int>(cutting.shares) + 1, [&](int s) {
      if (s == 0 || s == cutting.shares) return clear_cut(s, s == 0 ? -1 : cutting.total);
      Share& out = shares[s];
      const int r = request_at(&Measured::tiles_at, s - 1);
      const TileRanges tiles = tiles_of(requests[r]);
      const int nth = s - 1 - requests[r].tiles_at;
      const Int head = common.head_groups == 1 ? 0 : divide(nth, tiles.count());
      out.tile_begin = s - 1;  // any numbers that rise
      out.request = r;
      out.head = static_cast<int>(head);
      out.tile = static_cast<int>(nth - head * tiles.count());
      out.kv_blocks = out.at = static_cast<int>(tiles.kv_blocks(out.tile));
    });
  }

  KILN_BOTH void cut(const Cutting& cutting) {
    const int many = static_cast<int>(cutting.shares);
    bool first = true;
    KILN_KEEP_LOOP
    while (crew.any(many + 1, [&](int s) { return cut_at(cutting, s, first); })) first = false;
  }

  /// Makes the cut at which share s begins. Returns true if the share now begins elsewhere than before. The
  /// thread of the share before may write its `begun` at the same time. That thread then returns true, and this cut
  /// is made again. The first round takes each share to begin inside a tile, as most do.
  KILN_BOTH bool cut_at(const Cutting& cutting, int s, bool first) const {
    Share& out = shares[s];
    if (s == 0 || s == cutting.shares) {
      out.begun = 0;
      if (first) clear_cut(s, s == 0 ? -1 : cutting.total);
      return false;
    }
    const Int begun = !first   ? *const_cast<const volatile Int*>(&shares[s - 1].begun)
                      : s == 1 ? 0
                               : cutting.even(s - 1) - cutting.tile_cost;
    if (!first && begun == out.seen) return false;
    if (first) clear_cut(s, cutting.total);
    out.seen = begun;
    Int begins = cutting.total;
    const Int cut = larger(cutting.even(s), begun + cutting.share);
    if (cut >= cutting.total) {
      clear_cut(s, cutting.total);
    } else {
      find_tile(cut, out);
      const Int end = out.tile_begin + out.kv_blocks + cutting.tile_cost;
      out.at = static_cast<int>(cutting.cut_tile(cut, out.tile_begin, end, begun));
      begins = out.at < out.kv_blocks ? out.tile_begin + out.at : end;
    }
    if (!first && begins == out.begun) return false;
    *const_cast<volatile Int*>(&out.begun) = begins;
    return true;
  }

  /// Walks from the tile of a cut to the tile at this place of the line, over at most MOST_STEPS tiles of its request. A
  /// late share moves a cut by a few tiles, and a search takes as long as a dozen steps. Returns false if the walk
  /// did not come to the place.
  KILN_BOTH bool walk_to(Int place, Share& out) const {
    constexpr int MOST_STEPS = 8;
    const TileRanges tiles = tiles_of(requests[out.request]);
    KILN_KEEP_LOOP
    for (int step = 0;; ++step) {
      const Int end = out.tile_begin + out.kv_blocks + common.shape.tile_cost;
      if (place < end) return true;
      const bool last = out.tile + 1 == tiles.count();
      if (step == MOST_STEPS || (last && out.head + 1 == common.head_groups)) return false;
      out.head += last;
      out.tile = last ? 0 : out.tile + 1;
      out.tile_begin = end;
      out.kv_blocks = static_cast<int>(tiles.kv_blocks(out.tile));
    }
  }
  /// Finds the tile at this place of the line. REQUIRES: 0 <= place < the line's length.
  KILN_BOTH void find_tile(Int place, Share& out) const {
    if (out.request >= 0 && out.tile_begin <= place && walk_to(place, out)) return;
    Int r = out.request;
    if (r < 0 || !(requests[r].line_at <= place && place < requests[r + 1].line_at))
      r = request_at(&Measured::line_at, place);
    const TileRanges tiles = tiles_of(requests[r]);
    const Int in_request = place - requests[r].line_at;
    Int head = 0, in_head = in_request;
    if (common.head_groups > 1) {
      const Int of_head = divide_any(requests[r + 1].line_at - requests[r].line_at, common.head_groups);
      head = divide_any(in_request, of_head);
      in_head -= head * of_head;
    }
    Tiles::Reach before{0, 0};
    if (tiles.count() > 1) before = within_many(requests[r], in_head);
    out.request = static_cast<int>(r);
    out.head = static_cast<int>(head);
    out.tile = static_cast<int>(before.tiles);
    out.tile_begin = place - in_head + before.cost;
    out.kv_blocks = static_cast<int>(tiles.kv_blocks(before.tiles));
  }
};

}  // namespace kiln::work_list
