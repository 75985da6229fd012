// What a cached kernel is launched with, as far as its parameters decide: for its occupancy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compile/key/facts.hpp"
#include "manifest/catalog.hpp"
#include "toolchain/occupancy.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

struct LaunchShape {
  /// Where the threads of a block are known from.
  enum class Threads { required, manifest, most, unknown } from = Threads::unknown;
  std::uint32_t threads = 0;
  std::optional<std::uint64_t> dynamic_shared;  ///< nothing: it depends on the call, or the template is gone
};
/// By what the compiler recorded, else by the template as it is today.
LaunchShape launch_shape(source::Catalog& catalog, const compile::Facts& facts);

std::optional<toolchain::Occupancy> occupancy_of(const compile::Facts& facts, const LaunchShape& shape);

/// "8 blocks an SM, 100 % of its warps (64 of 64), at 256 threads a block; no more for want of registers"
std::string occupancy_text(const compile::Facts& facts, const LaunchShape& shape);
/// Null where it is not known.
Json occupancy_json(const compile::Facts& facts, const LaunchShape& shape);

}  // namespace kiln::cli
