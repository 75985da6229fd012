// The steps beyond memory that one call may take. Only here do mode, seal and call meet.
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

/// The steps of the path that a call may take. A permission holds for the moment in which it was computed;
/// work that starts later asks again.
struct Permission {
  bool disk = true;      ///< step 2: the stores are read
  bool tier = true;      ///< step 4: the fleet's tier is asked, which waits for the network
  bool compile = true;   ///< step 5
  bool foreign = false;  ///< another toolchain's record is better than none
  /// False: the call itself forbids a compile. A refusal then names the call and not the mode.
  bool call_may_compile = true;
};

/// Mode and seal of one service. Thread-safe; every question is a few memory loads.
class Seal {
 public:
  /// Takes over the seal of the process, if there is one.
  explicit Seal(const Config& config);

  Permission permission(const Asked& asked) const noexcept;
  /// Seals the service. A mode jit or warn that was set stays.
  void close() noexcept { closed_ = true; }
  /// The mode that holds now. A seal of this service or of the process makes an unset mode sealed.
  Mode mode() const noexcept;
  /// True when the service or the process was sealed, whatever mode holds.
  bool is_closed() const noexcept;

 private:
  const Mode mode_;
  const bool mode_is_set_, tier_when_sealed_;
  std::atomic<bool> closed_{false};
};

}  // namespace kiln::runtime
