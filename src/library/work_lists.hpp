// The work lists of all operators that this library plans for.
#pragma once

#include "manifest/work_list.hpp"

namespace kiln::library {

/// What a manifest's [work_list] may name as its kind. An operator with a planner adds its kind here, and
/// nothing below knows of it.
source::WorkListKinds work_lists() noexcept;

}  // namespace kiln::library
