// What goes down the path: an instantiation with its closure and key. Private to pipeline*.cpp.
#pragma once

#include "runtime/pipeline.hpp"

namespace kiln::runtime {

struct Pipeline::Unit : Prepared {
  source::Instantiation instantiation;
};

inline base::Clock::duration seconds(double s) {
  return std::chrono::duration_cast<base::Clock::duration>(std::chrono::duration<double>(s));
}

inline constexpr const char* kNowhere =
    " is not in the cache, and may not be compiled (mode sealed, or so asked); prewarm it";

/// "rms_norm T=bf16 H=4096 for sm_90a".
inline std::string hint(const source::Instantiation& unit) {
  return unit.resolved.specialization.to_string() + " for " + unit.resolved.arch.name();
}

}  // namespace kiln::runtime
