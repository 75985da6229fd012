// From a caller's values to what is wanted: a specialisation, tuned where a choice is stored.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "runtime/kernels/packing.hpp"
#include "runtime/kernels/target.hpp"
#include "runtime/path/core.hpp"
#include "runtime/tuned/tuned_call.hpp"

namespace kiln::runtime {

struct GetRequest {
  base::Deadline deadline = base::Deadline::never();
  std::optional<toolchain::CUstream> stream;
  source::Which which = source::Which::kernel;
  compile::Urgency urgency = compile::Urgency::caller;
  bool may_compile = true;  ///< false: memory and disk only, whatever the mode; past the seal the tier, too
  bool past_seal = false;   ///< the explicit exception (prepare): neither mode nor seal holds it
  bool own_thread = false;  ///< on one of kiln's threads, which may be held up in the driver
  /// KernelTemplate::epoch() when it was asked for: a release since then drops it. None: the present one.
  std::optional<std::uint64_t> epoch{};

  Asked asked() const noexcept { return {may_compile, past_seal}; }
};

/// What a caller wants, checked.
struct Wanted {
  source::Resolved resolved;
  PackedParameters exact;                 ///< every parameter, resolved
  std::optional<PackedParameters> given;  ///< as the caller said it, when that can be packed
  std::string undecided;  ///< as TunedCall's: `resolved` and `exact` are what a choice may change
  std::shared_ptr<const KeyedFiles> files;  ///< as TunedCall's, of the kernel
  std::string name() const { return resolved.specialization.to_string(); }
  bool is_of(const Wanted& call) const {
    return name() == call.name() && undecided.empty() == call.undecided.empty();
  }
};

/// Thread-safe.
class CallResolver {
 public:
  /// All must outlive it.
  CallResolver(Core& core, const std::shared_ptr<const source::Template>& origin, const Target& target,
               const ParameterPacking& packing)
      : core_(core), origin_(origin), target_(target), packing_(packing) {}

  /// A sealed service reads no disk: what was resolved before the seal holds. Throws as source::resolve.
  TunedCall resolve(std::span<const Value> values, const GetRequest& request, source::Archs archs,
                    Disk disk) const;
  Wanted want(std::span<const Value> values, const GetRequest& request, Disk disk = Disk::asked,
              source::Archs archs = source::Archs::supported) const;
  /// Asks the stores for what is undecided; it stays so where they do not answer, for this once.
  Wanted decided(Wanted wanted, const GetRequest& request) const;

 private:
  Core& core_;
  const std::shared_ptr<const source::Template>& origin_;
  const Target& target_;
  const ParameterPacking& packing_;
};

}  // namespace kiln::runtime
