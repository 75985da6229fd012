// A manifest's [work_list] with its expressions evaluated for one kernel on one device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "manifest/manifest.hpp"

namespace kiln::runtime {

/// The values that all work lists of a kernel share. They are evaluated once, and the planner of their kind
/// reads them.
struct WorkListFacts {
  std::vector<std::int64_t> kernel;  ///< a value for each `kernel` key of the kind, in its order
  std::int64_t workers = 0;          ///< blocks of the grid; a caller may ask for another number
};

/// `slots`: values of parameters, derives, exports, arch and device at least.
WorkListFacts work_list_facts(const source::Manifest& manifest, const source::WorkListSpec& list,
                              std::span<const std::int64_t> slots);

/// Bytes of the workspace for `workers` blocks. 0: the kernel takes none. Throws Error(requirement) when the
/// shape of the workspace has a negative extent, or more bytes than 63 bits count.
std::uint64_t workspace_bytes(const source::Manifest& manifest, const source::WorkListSpec& list,
                              std::span<const std::int64_t> slots, std::int64_t workers);

}  // namespace kiln::runtime
