// Resolves a caller's values to a wanted kernel: a specialisation, tuned where a choice is stored.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "runtime/kernels/packing.hpp"
#include "runtime/kernels/target.hpp"
#include "runtime/path/core.hpp"
#include "runtime/tuned/call.hpp"

namespace kiln::runtime {

struct GetRequest {
  base::Deadline deadline = base::Deadline::never();
  std::optional<toolchain::CUstream> stream;
  source::Which which = source::Which::kernel;
  compile::Urgency urgency = compile::Urgency::caller;
  bool may_compile = true;  ///< false: memory and disk only, whatever the mode; with past_seal also the tier
  bool past_seal = false;  ///< the explicit exception (prepare): neither mode nor seal holds the request back
  bool own_thread = false;  ///< on one of kiln's threads, where a seal may come before its turn
  /// KernelTemplate::epoch() when the request was made: a release since then drops the request. None: the
  /// present epoch.
  std::optional<std::uint64_t> epoch{};

  Asked asked() const noexcept { return {may_compile, past_seal}; }
};

/// The kernel that a caller wants, with checked values.
struct Wanted {
  source::Resolved resolved;
  PackedParameters exact;                 ///< every parameter, resolved
  std::optional<PackedParameters> given;  ///< values as the caller gave them, when they can be packed
  std::string undecided;  ///< as in TunedCall: a choice may still change `resolved` and `exact`
  std::shared_ptr<const KeyedFiles> files;  ///< as in TunedCall; null for a reference
  std::string name() const { return resolved.specialization.to_string(); }
  bool is_of(const Wanted& call) const {
    return name() == call.name() && undecided.empty() == call.undecided.empty();
  }
};

/// True when the stores may still be asked for the tuned choice of this call. A sealed service does not ask
/// them: the defaults serve there.
inline bool is_open(const Core& core, const Wanted& wanted, const Asked& asked = {}) noexcept {
  return !wanted.undecided.empty() && core.permission(asked).disk;
}

/// Thread-safe.
class CallResolver {
 public:
  /// All arguments must outlive it.
  CallResolver(Core& core, const std::shared_ptr<const source::Template>& origin, const Target& target,
               const ParameterPacking& packing)
      : core_(core), origin_(origin), target_(target), packing_(packing) {}

  /// A sealed service reads no disk, so only choices that were resolved before the seal hold.
  /// Throws as source::resolve.
  TunedCall resolve(std::span<const Value> values, const GetRequest& request, source::Archs archs,
                    Disk disk) const;
  Wanted want(std::span<const Value> values, const GetRequest& request, Disk disk = Disk::asked,
              source::Archs archs = source::Archs::supported) const;
  /// Asks the stores for an undecided choice. When they do not answer, the choice stays undecided
  /// for this call.
  Wanted decided(Wanted wanted, const GetRequest& request) const;

 private:
  Core& core_;
  const std::shared_ptr<const source::Template>& origin_;
  const Target& target_;
  const ParameterPacking& packing_;
};

}  // namespace kiln::runtime
