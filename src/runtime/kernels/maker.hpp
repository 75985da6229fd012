// Makes a kernel that is not ready: past the checks of seal and capture, along the path, into the loader.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/kernels/loader.hpp"

namespace kiln::runtime {

/// Thread-safe.
class KernelMaker {
 public:
  /// All arguments must outlive it.
  KernelMaker(Core& core, const std::shared_ptr<const source::Template>& origin, const Target& target,
              const ParameterPacking& packing, KernelTables& tables, FallbackChoices& fallbacks);

  Core& core() const noexcept { return core_; }
  const CallResolver& calls() const noexcept { return calls_; }

  /// Throws when the template has no device, or this process was forked from the one that opened it.
  void check_usable() const;
  /// True when a miss must be refused because of a capture. Asks the driver only when a stream was given.
  bool captures(const GetRequest& request) const;
  [[noreturn]] void refuse_in_capture(const Wanted& wanted) const;
  /// Throws when the seal refuses the kernel; records a kernel that is admitted.
  void admit(const Wanted& wanted, const GetRequest& request);

  /// The ready kernel with the resolved parameters, or null. Remembers the caller's own spelling of them.
  const LoadedKernel* ready(const Wanted& wanted, source::Which which);
  /// As ready, for kiln's own threads, which look under the mutex: a release may come at any time there.
  const LoadedKernel* ready_behind(const Wanted& wanted, source::Which which);

  /// Obtains the image and loads the kernel. Work that goes on after the call holds `keep`. Throws
  /// CompileError and Error. REQUIRES: the request was admitted.
  const LoadedKernel& make(const Wanted& wanted, const GetRequest& request, const KeepAlive& keep);
  /// Makes the kernel from memory or disk if that needs no compile and takes no longer than a load does; else
  /// null. Errors are only logged, because the generic kernel serves.
  const LoadedKernel* make_at_once(const Wanted& wanted, const GetRequest& request, const KeepAlive& keep);
  /// Obtains only the image. Throws as make.
  Obtained obtain(const Wanted& wanted, const GetRequest& request);
  /// Resolves a call without a long wait. Its tuned choice stays undecided where no store may be asked (a
  /// capture) or none answers in time. The generic kernel then serves, and the choice is decided in the
  /// background.
  Wanted want_soon(std::span<const Value> values, const GetRequest& request) const;

  /// The number of releases so far.
  std::uint64_t epoch();
  /// As KernelLoader::adopt_own_arch_locked.
  std::vector<std::string> adopt_own_arch();
  /// Throws when a request on kiln's own threads has come to its turn after the seal, because it is
  /// then a miss.
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
