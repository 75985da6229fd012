// What goes down the path: an instantiation with its closure and key. Private to pipeline*.cpp.
#pragma once

#include "kiln/error.hpp"
#include "runtime/path/pipeline.hpp"
#include "runtime/state/refusal.hpp"

namespace kiln::runtime {

struct Pipeline::Unit : Prepared {
  source::Instantiation instantiation;
};

inline base::Clock::duration seconds(double s) {
  return std::chrono::duration_cast<base::Clock::duration>(std::chrono::duration<double>(s));
}

/// "rms_norm T=bf16 H=4096 for sm_90a".
inline std::string hint(const source::Instantiation& unit) {
  return unit.resolved.specialization.to_string() + " for " + unit.resolved.arch.name();
}

/// It is stored nowhere, and the caller or the mode does not let it be compiled. A plan makes kernels only,
/// so that a reference is refused without one.
[[noreturn]] inline void refuse(const source::Instantiation& unit) {
  throw Error(Errc::not_ready,
              hint(unit) + " is not in the cache, and may not be compiled (mode sealed, or so asked)" +
                  (unit.which == source::Which::kernel ? remedy(unit.resolved) : ""));
}

}  // namespace kiln::runtime
