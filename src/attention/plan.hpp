// Work lists of attention launches, made on the host: what each block of a fixed grid does, balanced by cost
// and split over kv, in the words of templates/attention/words.h. Makes no driver call, and knows no CUDA.
//
// Every (request, kv head, tile of packed rows) is a tile. It has the kv blocks that causal and window leave,
// one at least. Tiles follow each other in a line by request, head, row; a tile takes its kv blocks +
// tile_cost of it. The line is cut into shares, one for each worker, or for fewer where these would have less
// than min_kv_blocks + tile_cost each: `even` is what they have if all have the same. Two parts of a tile
// cost more than the whole one: each has tile_cost, and is written and read again. So a cut that would leave
// less than min_kv_blocks on one side of it moves to the tile's border, and a share takes a tile whole where
// it comes to no more than even + slack so, with slack = 2 * tile_cost + min_kv_blocks - 1; the next one is
// then as long as the others from there, and the last workers may have nothing.
//
// So whatever the lengths are, a worker has at most two parts of tiles, a work list at most 2 * workers - 2
// of them, and what a worker has (of each tile and part, its kv blocks + tile_cost) is at most even + 2 *
// (min_kv_blocks - 1) + 2 * tile_cost + 1, and, but for the last one, at least even - (min_kv_blocks - 1) -
// tile_cost. But where there are no more tiles than workers, and none takes more than even + slack +
// tile_cost, nothing is cut: each worker has one, until there are no more.
//
// Where tiles are together, whole tiles of a request and head that follow each other in a share are one item
// (but for a tile at whose border a share begins or ends), and the kernel counts them off. So there are as
// many items as requests, heads and cuts, not as there are tokens: a work list of long prompts is made in a
// tenth of the time, and copied in less.
//
// Where heads are together, h workers behind each other are a team: h is the largest divisor of kv_heads that
// leaves at most one worker in 32 without a team. The line is then cut for teams: a tile in it stands for
// those of h heads behind each other, and worker team * h + j has what the team has of the j-th of them. So
// blocks that run at the same time read the same kv tokens, whose heads are neighbours in memory.
#pragma once

#include <cstdint>
#include <span>

#include "attention/sizes.hpp"
#include "templates/attention/words.h"

namespace kiln::attention {

/// The lengths of a batch, as engines have them. Arrays are the caller's, in host memory.
struct Lengths {
  std::int64_t requests = 0;
  const std::int32_t* qo_indptr = nullptr;      ///< [requests + 1]; null: one token of q each
  const std::int32_t* kv_indptr = nullptr;      ///< [requests + 1]: tokens, or pages where page_size > 0
  const std::int32_t* kv_len = nullptr;         ///< [requests]; null: what kv_indptr and last_page_len say
  const std::int32_t* last_page_len = nullptr;  ///< [requests]: 1..page_size, where page_size > 0
  std::int64_t page_size = 0;                   ///< 0: kv is not paged
  std::int64_t window_left = -1;                ///< -1: off
};

/// The lengths of one request.
using Request = AttentionRequest;

/// What a work list came to.
struct Summary {
  std::int64_t words = 0;    ///< from the buffer's begin: what is to be copied to the device
  std::int64_t items = 0;    ///< tiles, parts of tiles, and what is together of them
  std::int64_t slots = 0;    ///< of the workspace that are used: parts of tiles
  std::int64_t workers = 0;  ///< up to the last that has a share
  std::int64_t cost = 0;     ///< of all tiles of all heads
};

/// Writes a work list into `out`, in one pass that never reads it (pinned and write-combined memory are
/// fine), and leaves what is behind it as it is. Throws Error(invalid_argument) before anything is written:
/// lengths beyond the limits, that shrink or are negative, a buffer of less than work_list_words(). Allocates
/// about 200 bytes for each request and 24 for each worker; time goes with requests, heads and items, and
/// with tokens only as their logarithm.
Summary write_work_list(const KernelShape& shape, const Limits& limits, const Lengths& lengths,
                        std::span<std::int32_t> out);

}  // namespace kiln::attention
