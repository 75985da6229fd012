// Fallbacks: a generic kernel serves at once, and the specialised kernel replaces it when it is adopted. The
// engine says when, or adoption is automatic.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/kernels/tables.hpp"

namespace kiln::runtime {

/// Throws Error(manifest) when the template `generic` cannot stand for `specialised`: it takes other
/// arguments, lacks an entry point, a global or a constant, or needs a parameter that
/// `specialised` cannot give.
void check_fallback(const source::Manifest& specialised, const source::Manifest& generic);

/// The values of `generic` for a wanted kernel of `specialised`. A parameter that the caller left to tuning
/// is left to tuning in `generic`, too, if it has a default there.
std::vector<Value> values_for_fallback(const source::Manifest& specialised, const source::Manifest& generic,
                                       const Wanted& wanted);

/// The kernels that get_or_fallback has settled on. Thread-safe.
class FallbackChoices {
 public:
  /// All arguments must outlive it.
  FallbackChoices(Core& core, const Target& target, KernelTables& tables)
      : core_(core), target_(target), tables_(tables) {}

  /// The kernel that calls like this one get from now on: `kernel`, or the kernel that another call has
  /// settled on meanwhile. A fallback is replaced when its specialised kernel is adopted.
  const LoadedKernel& choose(const Wanted& wanted, const LoadedKernel& kernel, bool is_fallback);
  /// Puts specialised kernels that are ready in the place of their fallbacks, and returns their names.
  /// `waiting` receives the calls whose specialised kernels are not there yet.
  std::vector<std::string> adopt(std::vector<Wanted>& waiting);
  /// As adopt, without `waiting`. REQUIRES: the state's mutex.
  std::vector<std::string> adopt_locked(KernelTables::State& state);
  void tell_adopted(const std::vector<std::string>& names) const;

 private:
  Core& core_;
  const Target& target_;
  KernelTables& tables_;
};

}  // namespace kiln::runtime
