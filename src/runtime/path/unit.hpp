// The input of the path: an instantiation with its files and key, and the options of its caller.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "base/deadline.hpp"
#include "compile/pool/demand.hpp"
#include "kiln/error.hpp"
#include "runtime/path/image.hpp"
#include "runtime/path/publisher.hpp"
#include "runtime/state/permission.hpp"
#include "runtime/state/refusal.hpp"
#include "runtime/state/service_state.hpp"

namespace kiln::runtime {

/// as_declared: an image that takes other arguments than its manifest declares is refused. any: it
/// is given out.
enum class Arguments { as_declared, any };

struct ObtainOptions {
  base::Deadline deadline = base::Deadline::never();
  Permission permission{};
  std::set<Key> rejected{};             ///< records that the driver refused
  WhenFull when_full = WhenFull::skip;  ///< what happens to the record when the publisher's queue is full
  compile::Urgency urgency = compile::Urgency::caller;
  Arguments arguments = Arguments::as_declared;
  /// The files of this instantiation, if this call has read them to look for a tuned choice; else null.
  std::shared_ptr<const KeyedFiles> files{};
  /// When no store has the image of the instantiation's own arch: an image of another arch that the same device
  /// runs serves, too.
  bool any_arch = false;
  bool reports_missing = true;  ///< what the tier does not have is reported to its prewarm job
};

struct Unit : KeyedFiles {
  source::Instantiation instantiation;
};

/// "rms_norm T=bf16 H=4096 for sm_90a".
inline std::string hint(const source::Instantiation& unit) {
  return unit.resolved.specialization.to_string() + " for " + unit.resolved.arch.name();
}

inline void tell(const Events& events, std::int32_t kind, const source::Instantiation& unit,
                 const Events::Fields& fields = {}) {
  if (events) events.tell(kind, unit.resolved.specialization.to_string(), unit.resolved.arch.name(), fields);
}

/// Refuses a unit that is stored nowhere and that the caller or the mode does not let be compiled. A plan
/// makes kernels only, so the message for a reference has no plan.
/// `instead` names the arch of an image that serves the same GPU; empty: there is none.
[[noreturn]] inline void refuse(const source::Instantiation& unit, const Permission& permission,
                                const std::string& instead = {}) {
  throw Error(Errc::not_ready,
              hint(unit) + " is not in the cache" +
                  (instead.empty() ? "" : " (the image for " + instead + " serves such a GPU)") + ", and " +
                  (permission.call_may_compile ? "mode sealed does not compile it"
                                               : "this call may not compile it (may_compile is false)") +
                  (unit.which == source::Which::kernel ? remedy(unit.resolved) : ""));
}

inline base::Clock::duration seconds(double s) {
  return std::chrono::duration_cast<base::Clock::duration>(std::chrono::duration<double>(s));
}

}  // namespace kiln::runtime
