// The steps beyond memory that one call may take, and the handling of its miss. Only here do mode, seal and
// call meet.
#pragma once

#include <atomic>

#include "kiln/options.hpp"
#include "runtime/config/config.hpp"

namespace kiln::runtime {

/// The part of a permission that the call itself decides.
struct Asked {
  bool may_compile = true;  ///< false: the caller takes what is stored and nothing else
  bool past_seal = false;   ///< the explicit exception (prepare): neither mode nor seal holds it back
};

/// The handling that a seal adds when a kernel is not ready. quiet: none, as before the seal. warn: the kernel
/// is made, with a warning and an event. refuse: the caller gets an error.
enum class MissAfterSeal { quiet, warn, refuse };

/// The steps of the path that a call may take. A permission holds for the moment in which it was computed;
/// work that starts later asks again.
struct Permission {
  bool disk = true;      ///< step 2: the stores are read
  bool tier = true;      ///< step 4: the fleet's tier is asked, which waits for the network
  bool compile = true;   ///< step 5
  bool foreign = false;  ///< another toolchain's record is better than none
  /// False: the call itself forbids a compile. A refusal then names the call and not the mode.
  bool call_may_compile = true;
  MissAfterSeal after_seal = MissAfterSeal::quiet;
  /// True: a miss that the path refuses counts as a sealed miss, because mode sealed was set. The call's own
  /// wishes do not matter.
  bool counts_sealed_miss = false;
};

/// Mode and seal of one service. Thread-safe; a permission costs a few memory loads.
class Seal {
 public:
  /// Takes over the seal of the process, if there is one.
  explicit Seal(const Config& config);

  Permission permission(const Asked& asked) const noexcept;
  /// Seals the service. A mode jit or warn that was set stays.
  void close() noexcept { closed_ = true; }

 private:
  const Mode mode_;
  const bool mode_is_set_, tier_when_sealed_;
  std::atomic<bool> closed_{false};
};

}  // namespace kiln::runtime
