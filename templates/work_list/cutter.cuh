// The first steps of the device's writer of work lists (writer.cuh): the lengths of a batch, and the cuts of its line.
// - prepare() reads the shape and limits that the list in the buffer names. OneTileWriter::load() then reads the lengths of the
//   requests (one_tile.cuh).
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

/// Where a request's tiles are. Numbers of tiles, columns and items count groups of heads, with one head for each
/// worker of a team.
struct Place {
  Int line_at;     // where its tiles begin on the line
  int tiles_at;    // tiles of the requests before it
  int columns_at;  // items of the requests before it, if no tile was cut
  int live_at;     // columns of the requests before it that have kv tokens
};

/// The lengths of a batch in device memory, as kiln_attention_lengths has them.
struct DeviceLengths {
  int requests, page_size;
  const int* qo_indptr;  // null: one token each
  const int* kv_indptr;
  const int* kv_len;         // may be null
  const int* last_page_len;  // may be null

  /// The lengths of request i; qo_len is -1 if they are not allowed.
  KILN_BOTH AttentionRequest read(int i) const {
    constexpr int MOST = (1 << 30) - 1;
    // The loads come first, so that none of them waits for another one.
    const bool paged = page_size > 0;
    const int qo_begin = qo_indptr ? qo_indptr[i] : i;
    const int qo_end = qo_indptr ? qo_indptr[i + 1] : i + 1;
    const int kv_begin = kv_indptr[i], kv_end = kv_indptr[i + 1];
    const int given = kv_len ? kv_len[i] : 0;
    const int last_page = !kv_len && paged ? last_page_len[i] : 0;
    bool right = qo_begin >= 0 && qo_end >= qo_begin && kv_begin >= 0 && kv_end >= kv_begin;
    const int queries = right ? qo_end - qo_begin : -1, held = right ? kv_end - kv_begin : 0;
    Int tokens = held;
    if (kv_len) {
      right = right && given <= (paged ? static_cast<Int>(held) * page_size : held);
      tokens = given;
    } else if (paged) {
      right = right && (held == 0 || (1 <= last_page && last_page <= page_size));
      tokens = held > 0 ? static_cast<Int>(held - 1) * page_size + last_page : 0;
    }
    right = right && tokens >= 0 && tokens <= MOST && queries <= MOST;
    return {qo_begin, right ? queries : -1, kv_begin, static_cast<int>(tokens)};
  }
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

/// Limits of the writer for one tile.
enum : int { ONE_TILE_MOST_LINE = 1 << 30, ONE_TILE_MOST = 0x7fff };

/// A search of the writer for one tile divides what is left by SEARCH_WAYS in each step. This is the first step among n keys.
enum : int { SEARCH_WAYS = 4 };
KILN_BOTH constexpr int search_step(int n) {
  int out = 1;
  KILN_KEEP_LOOP
  while (out * SEARCH_WAYS < n) out *= SEARCH_WAYS;
  return out;
}

/// Marks of threads that read the lengths. Each is 1 if it holds.
struct alignas(16) BatchMarks {
  int changed;  // the header is not the one that prepare() has read
  int several;  // a request has several tiles of a head
  int large;    // the writer for one tile (one_tile.cuh) must not write this list
  int unfit;    // as `large`, found while other threads may read `large`
};

/// Values that all threads of a block share.
struct Common {
  TileShape shape;
  Slope slope;  // set if a request may have several tiles
  Divisor by_team, most_shares, by_requests;
  Int head_groups, team, max_tokens, tokens;
  Windows windows;
  int workers, kv_heads, longest;
  int made_for;        // attention_made_for() of the kernel
  int tokens_of_tile;  // a request with more query tokens has several tiles of a head
  int tokens_in_tile;  // query tokens of which the first tile has rows
  int left, right;     // the windows of the kernel; -1: none
  int most_cost;       // of a tile, in the writer for one tile: a line with such tiles alone is short enough
  int request_step, share_step;  // search_step() of the requests and shares
  unsigned refusal;              // a FaultReason found in the list that the buffer holds
  int refused;                   // the largest FaultReason found in the lengths
  BatchMarks marks;
  enum : int { HEADER = 9 };
  int header[HEADER];  // the words of read_header(), as prepare() has found them
  int starts[Slope::MOST_IN_TABLE];
  Int sums[Slope::MOST_IN_TABLE + 1];
};

/// A crew runs functions on the threads of a block:
/// - each(n, f): f(i) for all i below n; returns when all are done, and shows what they wrote.
/// - wait(): returns when the kernels before this one have ended.
/// - any(n, f): as each(), and returns whether an f(i) was true.
/// - few(n, f): f(i) for all i below n, of at most 32; other threads may not see yet what it wrote.
/// - spread(n, f): f(i) for the part of all i that this block of the grid has. first() is the first i of the thread.
/// - scan<Sum>(n, value, put): put(i, the sum of value(j) for all j < i); returns the sum of all.
/// - count(n, flags, put): put(i, the FlagCounts of all j < i, flags(i)), where flags(i) has a bit for each flag; returns the
///   counts of all.
/// - raise(word, v): makes *word at least v.
/// - mark(word): makes *word 1.
/// - store(to, item): writes 12 words, aligned to 16 bytes.
template <class Crew>
struct Cutter {
  Crew crew;
  Common& common;
  AttentionRequest* requests;  // [lengths.requests]
  Place* places;               // [lengths.requests + 1]
  Share* shares;               // [workers + 1]; after the last share comes one without a cut
  int* list;
  DeviceLengths lengths;

  // ---- prepare ----

  /// Derives what follows from the header of the list. Different threads derive the two parts.
  KILN_BOTH void prepare(int workers) {
    const int derives = 0, slopes = 32;
    crew.each(33, [&](int i) {
      if (i != derives && i != slopes) return;
      int from[HEADER];
      read_header(from);
      Shape shape;
      const bool known = unpack({{from[4], from[5], from[6]}}, shape);
      if (i == derives) derive(from, known, shape, workers);
      if (i == slopes && known && (lengths.qo_indptr || shape.group > shape.tile_rows)) set_slope(shape);
    });
  }

  // The words of the header that follow from the kernel, the limits and the windows. The L1 may hold older ones.
  enum : int { HEADER = Common::HEADER };
  KILN_BOTH void read_header(int (&out)[HEADER]) const {
    const auto* const from = reinterpret_cast<const volatile AttentionHeader*>(list);
    out[0] = from->workers;
    out[1] = from->kv_heads;
    out[2] = from->window_left;
    out[3] = from->window_right;
    out[4] = from->shape[0];
    out[5] = from->shape[1];
    out[6] = from->shape[2];
    out[7] = from->max_requests;
    out[8] = from->max_tokens;
  }
  /// Marks a change if word w of read_header() is not as prepare() has found it. The word after them stands for the query
  /// tokens of the batch.
  enum : int { CHECKED = HEADER + 1 };
  KILN_BOTH void check(int w) const {
    if (w < HEADER) {
      const int at = w < 3 ? w + 1 : w == 3 ? 6 : w + 7;
      if (const_cast<const volatile int*>(list)[at] != common.header[w]) crew.mark(common.marks.changed);
      return;
    }
    const int* const qo = lengths.qo_indptr;
    common.tokens = qo ? static_cast<Int>(qo[lengths.requests]) - qo[0] : lengths.requests;
    if (common.tokens > common.max_tokens) crew.mark(common.marks.large);
  }

  KILN_BOTH void set_slope(const Shape& shape) {
    common.slope = Slope(shape);
    if (common.slope.run > Slope::MOST_IN_TABLE) return;
    common.slope.starts = common.starts;
    common.slope.sums = common.sums;
  }

  KILN_BOTH void derive(const int (&from)[HEADER], bool known, const Shape& shape, int workers) {
    Common& out = common;
    for (int w = 0; w < HEADER; ++w) out.header[w] = from[w];
    out.workers = from[0];
    out.kv_heads = from[1];
    out.windows = {from[2], from[3]};
    out.max_tokens = from[8];
    out.longest = out.marks.changed = out.marks.several = out.marks.unfit = 0;
    out.refused = FAULT_NONE;
    out.refusal = !known || out.workers < 1 || out.kv_heads < 1          ? FAULT_NO_LIST
                  : lengths.requests > from[7] || out.workers != workers ? FAULT_LIMITS
                                                                         : FAULT_NONE;
    out.marks.large =
        out.refusal != FAULT_NONE || lengths.requests > ONE_TILE_MOST || workers > ONE_TILE_MOST ? 1 : 0;
    if (out.refusal != FAULT_NONE) return;
    out.shape = TileShape(shape);
    out.team = team_size(shape, out.kv_heads, out.workers);
    out.by_team = Divisor(out.team);
    out.head_groups = divide(out.kv_heads, out.by_team);
    out.most_shares = Divisor(divide(out.workers, out.by_team));
    out.by_requests = Divisor(larger(lengths.requests, 1));
    out.most_cost =
        static_cast<int>(divide_any(ONE_TILE_MOST_LINE - 1, out.head_groups * larger(lengths.requests, 1)));
    out.request_step = search_step(lengths.requests);
    out.share_step = search_step(static_cast<int>(out.most_shares.value));
    out.tokens_of_tile = static_cast<int>(divide(shape.tile_rows, out.shape.by_group));
    out.tokens_in_tile = static_cast<int>(divide(shape.tile_rows - 1, out.shape.by_group)) + 1;
    out.left = shape.window ? from[2] : -1;
    out.right = shape.causal ? 0 : shape.window ? from[3] : -1;
    out.made_for = static_cast<int>(
        attention_made_for(static_cast<unsigned>(shape.tile_rows), static_cast<unsigned>(shape.tile_kv),
                           static_cast<unsigned>(shape.group), shape.causal, shape.tiles_together, from[3]));
  }

  // ---- measure ----

  KILN_BOTH TileRanges tiles_of(const AttentionRequest& of) const {
    return TileRanges(common.shape, common.windows, of);
  }
  // Few batches need the sums over many tiles. They are kept out of the other code, which has to be short: a
  // kernel of a few microseconds runs all of it for the first time.
  KILN_BOTH KILN_APART Int cost_of_many(const AttentionRequest& of) const {
    return Tiles(common.shape, common.slope, common.windows, of).cost();
  }
  KILN_BOTH KILN_APART Tiles::Reach within_many(const AttentionRequest& of, Int cost) const {
    return Tiles(common.shape, common.slope, common.windows, of).within(cost, {0, 0});
  }
  /// The cost of all tiles of one group of heads.
  KILN_BOTH Int cost_of(const AttentionRequest& of, const TileRanges& tiles) const {
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
          places[i].line_at = before.line;
          places[i].tiles_at = before.tiles;
          places[i].columns_at = before.columns;
          places[i].live_at = before.live;
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
  KILN_BOTH int request_at(T Place::*member, T value) const {
    int low = 0;
    KILN_KEEP_LOOP
    for (int high = lengths.requests; high - low > 1;) {
      const int middle = (low + high) / 2;
      (places[middle].*member <= value ? low : high) = middle;
    }
    return low;
  }

  /// The largest cost of a tile. Only the first head of each request counts, since the other heads are alike.
  KILN_BOTH void find_longest(int tiles_of_all) {
    crew.each(tiles_of_all, [&](int i) {
      const int r = request_at(&Place::tiles_at, i), tile = i - places[r].tiles_at;
      const TileRanges tiles = tiles_of(requests[r]);
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
      const int r = request_at(&Place::tiles_at, s - 1);
      const TileRanges tiles = tiles_of(requests[r]);
      const int nth = s - 1 - places[r].tiles_at;
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
  /// is made again. The first round takes each share to begin at its even place inside a tile, as most do.
  KILN_BOTH bool cut_at(const Cutting& cutting, int s, bool first) const {
    Share& out = shares[s];
    if (s == 0 || s == cutting.shares) {
      out.begun = 0;
      if (first) clear_cut(s, s == 0 ? -1 : cutting.total);
      return false;
    }
    const auto guess = [&](int share) { return share == 0 ? 0 : cutting.even(share) - cutting.tile_cost; };
    const Int begun = first ? guess(s - 1) : *const_cast<const volatile Int*>(&shares[s - 1].begun);
    if (!first && begun == out.seen) return false;
    const Int before = first ? guess(s) : out.begun;
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
    *const_cast<volatile Int*>(&out.begun) = begins;
    return begins != before;
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
    if (r < 0 || !(places[r].line_at <= place && place < places[r + 1].line_at))
      r = request_at(&Place::line_at, place);
    const TileRanges tiles = tiles_of(requests[r]);
    const Int in_request = place - places[r].line_at;
    Int head = 0, in_head = in_request;
    if (common.head_groups > 1) {
      const Int of_head = divide_any(places[r + 1].line_at - places[r].line_at, common.head_groups);
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
