// What becomes of a kernel that is not ready: the seal says whether its caller is refused, and the plan of
// missing kernels says what was.
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

  /// What a call may do now. Work that starts later asks again.
  Permission permission(const Asked& asked) const noexcept { return seal_.permission(asked); }
  /// A service that was told mode jit or warn keeps it, and says once that the seal changes nothing.
  void seal();

  /// Tells of a miss after the seal. True when it must be refused. Touches no file.
  bool refuses(const source::Template& origin, const source::Resolved& resolved);
  /// Throws Error(not_ready) with the plan row when it must be refused.
  void refuse_when_sealed(const source::Template& origin, const source::Resolved& resolved);
  /// Adds a kernel to the plan, and tells the job that fills the fleet's tier of it. Nobody waits for that.
  void note(const source::Resolved& resolved);
  /// What was refused, as a plan.
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
