// Work lists of attention launches, made on the host. A work list says what each block of a fixed grid does.
// The work is balanced by cost and split over kv. templates/attention/words.h declares its words. This code
// makes no driver call, and knows no CUDA.
//
// The line:
// - A tile is a range of packed rows of one request and kv head. It has the kv blocks that causal and windows
//   leave, at least one.
// - Tiles follow each other in a line by request, head and row. The cost of a tile is its kv blocks +
//   tile_cost, and a tile takes its cost of the line.
// - The line is cut into shares, one for each worker. There are fewer shares where each would have less than
//   min_kv_blocks + tile_cost. `even` is the length of an equal share.
//
// Two parts of a tile cost more than the whole tile: each part has its own tile_cost, and is written and read
// again. So two rules move a cut:
// - A cut that would leave less than min_kv_blocks on one side moves to the border of the tile.
// - A share takes a tile whole where it then has at most even + slack, with slack = 2 * tile_cost +
//   min_kv_blocks - 1. The next share has its full length from there, and the last workers may have nothing.
//
// These bounds hold for all lengths:
// - A worker has at most two parts of tiles. A work list has at most 2 * workers - 2 parts.
// - The cost of a worker counts the kv blocks + tile_cost of each tile and part. It is at most even + 2 *
//   (min_kv_blocks - 1) + 2 * tile_cost + 1.
// - The cost of each worker but the last is at least even - (min_kv_blocks - 1) - tile_cost.
//
// There is one exception. Nothing is cut where there are no more tiles than workers and no tile takes more
// than even + slack + tile_cost. Each worker then has one tile, until no tiles are left.
//
// With tiles_together, whole tiles of a request and head that follow each other in a share are one item, and
// the kernel counts them off. A tile at whose border a share begins or ends is an item of its own. So the
// number of items grows with requests, heads and cuts, not with tokens. A work list of long prompts is made
// in a tenth of the time, and is copied in less.
//
// A batch with more keys and values than the L2 holds is handed out in waves instead (waves.hpp).
//
// With heads_together, h consecutive workers are a team. h is the largest divisor of kv_heads that leaves at
// most one worker in 32 without a team. The line is then cut for teams. A tile in it stands for the same tile
// of h consecutive heads, and worker team * h + j has the j-th of these heads. So blocks that run at the same
// time read the same kv tokens, whose heads are neighbours in memory.
#pragma once

#include <cstdint>
#include <span>

#include "attention/sizes.hpp"
#include "templates/attention/words.h"

namespace kiln::attention {

/// The lengths of a batch, as engines have them. The caller owns the arrays, which are in host memory.
struct Lengths {
  std::int64_t requests = 0;
  const std::int32_t* qo_indptr = nullptr;  ///< [requests + 1]; null: one token of q each
  const std::int32_t* kv_indptr = nullptr;  ///< [requests + 1]: tokens, or pages where page_size > 0
  const std::int32_t* kv_len = nullptr;  ///< [requests]; null: kv_indptr and last_page_len give the lengths
  const std::int32_t* last_page_len = nullptr;  ///< [requests]: 1..page_size, where page_size > 0
  std::int64_t page_size = 0;                   ///< 0: kv is not paged
  std::int64_t window_left = -1;                ///< -1: off
  std::int64_t window_right = -1;               ///< -1: off; 0 is causal
};

/// The lengths of one request.
using Request = AttentionRequest;

/// The size of a work list that was written.
struct Summary {
  std::int64_t words = 0;    ///< words from the begin of the buffer that are to be copied to the device
  std::int64_t items = 0;    ///< items: tiles, parts of tiles, and runs of whole tiles
  std::int64_t slots = 0;    ///< slots of the workspace in use, one for each part of a tile
  std::int64_t workers = 0;  ///< workers up to the last one that has a share
  std::int64_t cost = 0;     ///< cost of all tiles of all heads
};

/// Writes a work list into `out` in one pass. It never reads `out`, so pinned and write-combined memory are
/// fine. Words after the list keep their values.
/// Throws Error(invalid_argument) before anything is written: for lengths that are negative, shrink or exceed
/// the limits, or for a buffer of less than work_list_words().
/// Allocates about 200 bytes for each request and 24 for each worker. Time grows with requests, heads and
/// items, but with tokens only as their logarithm.
Summary write_work_list(const KernelShape& shape, const Limits& limits, const Lengths& lengths,
                        std::span<std::int32_t> out);

}  // namespace kiln::attention
