// The handling of a kernel that is not ready. The permission says whether its caller is refused, and the plan
// of missing kernels lists the refused ones.
#pragma once

#include <string>

#include "runtime/path/path.hpp"
#include "runtime/state/background.hpp"
#include "runtime/state/missing.hpp"
#include "runtime/state/permission.hpp"
#include "runtime/state/recorder.hpp"

namespace kiln::runtime {

/// Thread-safe. The arguments of the constructor must outlive it.
class Misses {
 public:
  Misses(ServiceState& state, Recorder& recorder, Path& path, Background& background);

  /// The permission of a call at this moment. Work that starts later asks again.
  Permission permission(const Asked& asked) const noexcept { return seal_.permission(asked); }
  /// Seals the service. A mode jit or warn that was set stays, and one warning says that the
  /// seal changes nothing.
  void seal();

  /// Reports a miss after the seal. True when the caller must be refused. Touches no file.
  bool refuses(const source::Template& origin, const source::Resolved& resolved, const Asked& asked = {});
  /// Throws Error(not_ready) with the plan row when the caller must be refused.
  void refuse_when_sealed(const source::Template& origin, const source::Resolved& resolved,
                          const Asked& asked);
  /// Adds a kernel to the plan, and reports it to the job that fills the fleet's tier. The call does not wait
  /// for that.
  void note(const source::Resolved& resolved);
  /// The refused kernels, as a plan.
  std::string plan() { return missing_.plan(); }

 private:
  ServiceState& state_;
  Recorder& recorder_;
  Path& path_;
  Background& background_;
  Seal seal_;
  Missing missing_;
};

}  // namespace kiln::runtime
