// Hands out whole tiles in waves, for batches whose keys and values do not fit the L2.
//
// Neighbours on the line of tiles read the same keys and values. Where the line is cut into shares, each worker walks along
// its own share, so the workers read all heads of all requests at the same time. With more keys and values than the L2
// holds, each worker then reads them from memory. In waves the worker that is free first takes the next tile of the
// line, so all workers are near each other on it, and memory is read once.
//
// The cost of a worker is at most the even share plus the cost of the longest tile. No tile is cut.
#pragma once

#include <cstdint>
#include <span>

#include "attention/plan.hpp"
#include "attention/tiles.hpp"

namespace kiln::attention {

/// The most tiles of a list in waves, and the least for each worker. Each tile is an item, so the list grows with
/// tokens. With few tiles a worker the longest tile would count for much.
inline constexpr std::int64_t kMostInWaves = 65536, kLeastInWaves = 8;

/// True when a batch of `tiles` tiles in all is handed out in waves. REQUIRES: `requests` are checked.
bool goes_in_waves(const KernelShape& shape, const Limits& limits, std::span<const Request> requests,
                   std::int64_t tiles);

struct Handed {
  std::int64_t items = 0, slots = 0, workers = 0;  ///< as in Summary
  std::int64_t busy = 0;                           ///< workers that have kv tokens
};

/// Writes the items and the table of first items into `out`, the first word of the list. `tiles`: of each request, for
/// one head. REQUIRES: goes_in_waves().
Handed hand_out_in_waves(const KernelShape& shape, const Limits& limits, std::span<const Request> requests,
                         std::span<const Tiles> tiles, std::int32_t* out);

}  // namespace kiln::attention
