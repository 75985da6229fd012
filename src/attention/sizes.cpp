#include "attention/sizes.hpp"

#include <algorithm>
#include <string>

#include "attention/layout.hpp"
#include "attention/waves.hpp"
#include "kiln/error.hpp"

namespace kiln::attention {
namespace {

void check(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throw Error(Errc::invalid_argument, std::string("attention plan: ") + name + " = " + std::to_string(value) +
                                          " must be " + std::to_string(least) + " to " +
                                          std::to_string(most));
}

}  // namespace

std::int64_t work_list_words(const KernelShape& shape, const Limits& limits) {
  check("tile_rows", shape.tile_rows, 1, 65536);
  check("tile_kv", shape.tile_kv, 1, 65536);
  check("group", shape.group, 1, 65536);
  check("tile_cost", shape.tile_cost, 0, 65536);
  check("min_units", shape.min_kv_blocks, 1, 65536);
  check("max_requests", limits.max_requests, 1, kMost);
  check("kv_heads", limits.kv_heads, 1, 65536);
  check("workers", limits.workers, 1, kMaxWorkers);
  // Packed rows are numbered by i32, and so is the last row of a tile that is not full.
  check("max_tokens", limits.max_tokens, 1, (kMost - shape.tile_rows) / shape.group);
  const std::int64_t with_tokens = std::min(limits.max_requests, limits.max_tokens);
  const std::int64_t tiles = limits.max_tokens * shape.group / shape.tile_rows + with_tokens;
  std::int64_t items = tiles * limits.kv_heads + limits.workers;  // below 2^49
  // A cut adds at most three items to a run of whole tiles. A cut inside a tile leaves two parts of it, and
  // whole tiles on both sides. A cut between two tiles makes the tile before or after it an item of its own.
  const std::int64_t in_waves = shape.resident_kv > 0 ? kMostInWaves : 0;
  if (shape.tiles_together)
    items = std::min(items, std::max(in_waves, with_tokens * limits.kv_heads + 3 * limits.workers));
  const std::int64_t words =
      items_at(limits.workers) + items * kItemWords + limits.max_requests * kRequestWords;
  const auto refuse = [&](const std::string& what) {
    throw Error(Errc::invalid_argument, "attention plan: max_tokens = " + std::to_string(limits.max_tokens) +
                                            ", max_requests = " + std::to_string(limits.max_requests) +
                                            " and kv_heads = " + std::to_string(limits.kv_heads) + " make " +
                                            what + "; at most 2^31 - 1");
  };
  if (words > kMost) refuse("plans of " + std::to_string(words) + " words");
  // A tile takes up to 2^30 + 2^16 of the line, so this limit keeps the length of the line within 64 bits.
  if (tiles * limits.kv_heads > kMost) refuse(std::to_string(tiles * limits.kv_heads) + " tiles");
  return words;
}

}  // namespace kiln::attention
