// Checks that a candidate of `tune` accepts every launch that the default accepts.
#pragma once

#include <string>

#include "instantiate/resolve.hpp"

namespace kiln::source {

/// Why the manifest may refuse launches with `candidate` that it accepts with `plain`. Both resolve the same
/// call. Empty when `candidate` accepts them all. The reason is a pointer that must be aligned to more, or a
/// launch's [[require]] that holds for fewer values.
///
/// A rule is accepted when both calls fold it to the same code, or when it is always true. Two constants are
/// compared. In every other case two conditions must hold:
/// - Each number that differs divides the default's number, as with vectors of half the width.
/// - None of the launches that are tried finds the candidate stricter.
std::string stricter(const Manifest& manifest, const Resolved& plain, const Resolved& candidate);

}  // namespace kiln::source
