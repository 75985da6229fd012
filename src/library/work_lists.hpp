// The work lists of all operators that this library plans for.
#pragma once

#include "manifest/work_list.hpp"

namespace kiln::library {

/// The kinds that a manifest's [work_list] may name. An operator with a planner adds its kind here; the rooms
/// below know none of them.
source::WorkListKinds work_lists() noexcept;

}  // namespace kiln::library
