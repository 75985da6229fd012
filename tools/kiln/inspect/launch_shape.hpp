// The launch shape of a cached kernel, as far as its parameters decide it. It gives the occupancy.
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
  /// Where the number of threads of a block comes from. `most` is the kernel's maximum.
  enum class Threads { required, manifest, most, unknown } from = Threads::unknown;
  std::uint32_t threads = 0;
  std::optional<std::uint64_t> dynamic_shared;  ///< nothing: depends on the call, or the template is gone
};
/// The shape from facts that the compiler recorded, else from the template as it is today.
LaunchShape launch_shape(source::Catalog& catalog, const compile::Facts& facts);

std::optional<toolchain::Occupancy> occupancy_of(const compile::Facts& facts, const LaunchShape& shape);

/// "8 blocks an SM, 100 % of its warps (64 of 64), at 256 threads a block; limited by registers"
std::string occupancy_text(const compile::Facts& facts, const LaunchShape& shape);
/// Null when the occupancy is not known.
Json occupancy_json(const compile::Facts& facts, const LaunchShape& shape);

}  // namespace kiln::cli
