// A manifest's [limits], compared with the results of a compile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compile/key/facts.hpp"
#include "manifest/manifest.hpp"

namespace kiln::compile {

struct BrokenLimit {
  std::string_view name;  ///< its key in [limits]
  double measured = 0;    ///< bytes, warnings or seconds, as in [limits]
  std::int64_t allowed = 0;
  std::string sentence;  ///< "12 performance warnings, and performance_warnings allows 0"
};

enum class Strictness {
  declared,  ///< what [limits] says
  strict     ///< as `declared`; also no performance warning at all, unless [limits] gives a number
};

/// The performance warnings of all entry points, each line once.
std::vector<std::string> performance_warnings_of(const Facts& facts);

/// The limits that do not hold, in the order of [limits]'s documentation. For spills, the entry point
/// with the most counts.
std::vector<BrokenLimit> broken_limits(const source::Limits& limits, const Facts& facts,
                                       Strictness strictness);

/// "scale N=3 for sm_90a breaks its manifest's limits: A; B". REQUIRES: `broken` is not empty.
std::string limits_sentence(const Facts& facts, const std::vector<BrokenLimit>& broken);

}  // namespace kiln::compile
