// A generic kernel at once, the specialised one when the engine says so: what was chosen, and what is
// adopted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/kernels/tables.hpp"

namespace kiln::runtime {

/// Throws Error(manifest) when the template `generic` cannot stand for `specialised`: it takes other
/// arguments, lacks an entry point, a global or a constant, or needs parameters that it cannot be told.
void check_fallback(const source::Manifest& specialised, const source::Manifest& generic);

/// The values of `generic` for what is wanted of `specialised`. What the caller left to tuning is left to it
/// in the generic template, too, if it has a default there.
std::vector<Value> values_for_fallback(const source::Manifest& specialised, const source::Manifest& generic,
                                       const Wanted& wanted);

/// What get_or_fallback has settled on. Thread-safe.
class FallbackChoices {
 public:
  /// All must outlive it.
  FallbackChoices(Core& core, const Target& target, KernelTables& tables)
      : core_(core), target_(target), tables_(tables) {}

  /// The kernel that calls like this one get from now on: `kernel`, or what another call has settled on
  /// meanwhile. A fallback is replaced when its specialised kernel is adopted.
  const LoadedKernel& choose(const Wanted& wanted, const LoadedKernel& kernel, bool is_fallback);
  /// Specialised kernels that are ready take the place of their fallbacks. Their names; `waiting` becomes
  /// the calls whose specialised kernels are not there yet.
  std::vector<std::string> adopt(std::vector<Wanted>& waiting);
  /// The same. REQUIRES: the state's mutex.
  std::vector<std::string> adopt_locked(KernelTables::State& state);
  void tell_adopted(const std::vector<std::string>& names) const;

 private:
  Core& core_;
  const Target& target_;
  KernelTables& tables_;
};

}  // namespace kiln::runtime
