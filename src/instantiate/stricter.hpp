// Whether a candidate of `tune` takes every launch that the default takes.
#pragma once

#include <string>

#include "instantiate/resolve.hpp"

namespace kiln::source {

/// Why launches that the manifest takes when the call is `plain` may be refused when it is `candidate`, of
/// the same call: a pointer must be aligned to more, or a [[require]] of the launch holds for less, or cannot
/// be shown not to. Empty: it takes them all. Shown is what does not depend on the difference; what does,
/// where every number that differs divides the default's (vectors of half the width) and no launch that is
/// tried says otherwise.
std::string stricter(const Manifest& manifest, const Resolved& plain, const Resolved& candidate);

}  // namespace kiln::source
