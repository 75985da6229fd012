// A manifest while it is read: what there is of it, and what expressions may name.
#pragma once

#include <set>
#include <string>

#include "manifest/manifest.hpp"

namespace kiln::source {

struct Draft {
  Manifest out;
  /// Names of parameters, derives, arguments and run-time values: one name space.
  std::set<std::string, std::less<>> taken;

  // What expressions know. `launch` and what follows it are layers on each other (make_symbols), so a draft
  // stays where it is.
  Symbols resolve;    ///< parameters, derives, arch: defaults and derives
  Symbols launch;     ///< and arguments, run-time values, exports, dev.*: everything else
  Symbols require;    ///< `launch` and floating-point arguments: [[require]]
  Symbols geometry;   ///< `launch` and occupancy: [launch]
  Symbols run;        ///< `launch` and what `kiln run` alone knows: shapes, fills, [cost]
  Symbols reference;  ///< `geometry` without exports, which the reference's image does not have: [reference]

  Draft() = default;
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
};

}  // namespace kiln::source
