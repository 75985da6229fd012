// What one call may do beyond looking into memory: the one place where mode, seal and call meet.
#pragma once

#include <atomic>

#include "kiln/options.hpp"
#include "runtime/config/config.hpp"

namespace kiln::runtime {

/// What a call asks for itself.
struct Asked {
  bool may_compile = true;  ///< false: the caller takes what is stored and nothing else
  bool past_seal = false;   ///< the explicit exception (prepare): neither mode nor seal holds it back
};

/// Which steps of the path a call may take. It holds for the moment in which it was computed: work that
/// starts later asks again.
struct Permission {
  bool disk = true;      ///< step 2: the stores are read
  bool tier = true;      ///< step 4: the fleet's tier is asked, which waits for the network
  bool compile = true;   ///< step 5
  bool foreign = false;  ///< another toolchain's record is better than none
};

/// Mode and seal of one service. Thread-safe; every question is a few memory loads.
class Seal {
 public:
  /// Takes over the seal of the process, if there is one.
  explicit Seal(const Config& config);

  Permission permission(const Asked& asked) const noexcept;
  /// A service that was told mode jit or warn keeps it.
  void close() noexcept { closed_ = true; }
  /// The mode that holds now: a seal, of this service or of the process, makes a mode that nobody set sealed.
  Mode mode() const noexcept;
  /// Whether the service or the process was sealed, whatever the mode makes of it.
  bool is_closed() const noexcept;

 private:
  const Mode mode_;
  const bool mode_is_set_, tier_when_sealed_;
  std::atomic<bool> closed_{false};
};

}  // namespace kiln::runtime
