// How a kernel that is not ready comes to be: past the seal and the capture, along the path, into the loader.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/kernels/loader.hpp"

namespace kiln::runtime {

/// Thread-safe.
class KernelMaker {
 public:
  /// All must outlive it.
  KernelMaker(Core& core, const std::shared_ptr<const source::Template>& origin, const Target& target,
              const ParameterPacking& packing, KernelTables& tables, FallbackChoices& fallbacks);

  Core& core() const noexcept { return core_; }
  const CallResolver& calls() const noexcept { return calls_; }

  /// Throws when the template has no device, or this process was forked from the one that opened it.
  void check_usable() const;
  /// Whether a miss must be refused because of a capture. Asks the driver only when a stream was given.
  bool captures(const GetRequest& request) const;
  [[noreturn]] void refuse_in_capture(const Wanted& wanted) const;
  /// Throws when the seal is in the way; records what is admitted.
  void admit(const Wanted& wanted, const GetRequest& request);

  /// The kernel by its resolved parameters, or null. The caller's own spelling of them is remembered.
  const LoadedKernel* ready(const Wanted& wanted, source::Which which);
  /// The same for threads of kiln's own, away from which nobody keeps a release.
  const LoadedKernel* ready_behind(const Wanted& wanted, source::Which which);

  /// Throws CompileError and Error. REQUIRES: admitted. `keep` is held by the work that goes on.
  const LoadedKernel& make(const Wanted& wanted, const GetRequest& request, const KeepAlive& keep);
  /// From disk or memory, if that neither compiles nor takes longer than a load does; else null. Whatever is
  /// wrong with it, there is the generic kernel.
  const LoadedKernel* make_at_once(const Wanted& wanted, const GetRequest& request, const KeepAlive& keep);
  /// The image only. Throws as make.
  Obtained obtain(const Wanted& wanted, const GetRequest& request);
  /// What is wanted, undecided where no store may be asked (a capture) or none answers in time: then the
  /// generic kernel serves, and what it is to become is decided behind the caller's back.
  Wanted want_soon(std::span<const Value> values, const GetRequest& request) const;

  /// Counts releases.
  std::uint64_t epoch();
  /// Throws when a request of kiln's own threads has come to its turn after the seal: it is a miss.
  void check_unsealed(const Wanted& wanted, const GetRequest& request);

 private:
  void check_kept(const Wanted& wanted, const GetRequest& request);
  void check_current_context(const Wanted& wanted) const;

  Core& core_;
  const std::shared_ptr<const source::Template>& origin_;
  const Target& target_;
  KernelTables& tables_;
  const CallResolver calls_;
  KernelLoader loader_;
  const std::uint64_t generation_ = base::process_generation();
};

}  // namespace kiln::runtime
