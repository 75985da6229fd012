// The work list of attention, as manifests describe it: [work_list] kind = "attention".
#pragma once

#include <cstdint>
#include <span>

#include "attention/sizes.hpp"
#include "manifest/work_list.hpp"

namespace kiln::source {
struct Manifest;
}

namespace kiln::attention {

/// The kind "attention". docs/reference/manifest.md explains its keys.
extern const source::WorkListKind kWorkList;

/// The manifest's list of this kind. Throws Error(invalid_argument) when the manifest has none.
const source::WorkListSpec& work_list_of(const source::Manifest& manifest);
/// The shape that the kernel fixes. `values` has one value for each key of kWorkList.kernel, in that order.
KernelShape shape_of(std::span<const std::int64_t> values);

}  // namespace kiln::attention
