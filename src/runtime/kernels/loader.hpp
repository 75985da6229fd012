// Step 7 of the path: one load of a kernel per context, however many callers wait for it.
#pragma once

#include <memory>

#include "runtime/kernels/fallback.hpp"
#include "runtime/kernels/tables.hpp"

namespace kiln::runtime {

/// Thread-safe.
class KernelLoader {
 public:
  /// All arguments must outlive it.
  KernelLoader(Core& core, const std::shared_ptr<const source::Template>& origin, const Target& target,
               KernelTables& tables, FallbackChoices& fallbacks)
      : core_(core), origin_(origin), target_(target), tables_(tables), fallbacks_(fallbacks) {}

  /// The kernel of `obtained`, or the kernel that another call has loaded meanwhile. A caller with a deadline
  /// does not call the driver itself, because a running kernel can hold up a load until it ends. Work that
  /// goes on after the call holds `keep`. Throws Error.
  const LoadedKernel& load_once(const Wanted& wanted, source::Instantiation unit, Obtained obtained,
                                const GetRequest& request, const KeepAlive& keep);
  /// The options with which a request goes down the path, with the permission of this moment.
  ObtainOptions options_of(const GetRequest& request) const noexcept;
  /// Puts kernels of the device's own arch in the place of those whose images were made for another arch, as
  /// far as they were made meanwhile. Returns their names. REQUIRES: the state's mutex.
  std::vector<std::string> adopt_own_arch_locked(KernelTables::State& state);

 private:
  std::shared_ptr<Loading> loading_of(const Wanted& wanted, const GetRequest& request, bool& first,
                                      const LoadedKernel*& there);
  void load_behind(const Wanted& wanted, source::Instantiation unit, Obtained obtained,
                   const GetRequest& request, const std::shared_ptr<Loading>& loading, const KeepAlive& keep);
  void load_and_land(const Wanted& wanted, const source::Instantiation& unit, Obtained obtained,
                     const GetRequest& request, Loading& loading, const KeepAlive& keep) noexcept;
  void make_own_arch_behind(const LoadedKernel* instead_of, const source::Instantiation& unit,
                            std::uint64_t epoch, const KeepAlive& keep) noexcept;
  void make_own_arch(const LoadedKernel* instead_of, const source::Instantiation& unit, std::uint64_t epoch);
  /// Counts a kernel that the tables hold now, and tells callbacks of it. May be called without the mutex.
  void report_load(const std::string& name, std::size_t bytes, double milliseconds) const;
  bool is_of_other_arch(const LoadedKernel& kernel) const;
  void give_up(Loading& loading, std::exception_ptr error) noexcept;
  std::unique_ptr<LoadedKernel> load(const source::Instantiation& unit, Obtained obtained,
                                     ObtainOptions options);

  Core& core_;
  const std::shared_ptr<const source::Template>& origin_;
  const Target& target_;
  KernelTables& tables_;
  FallbackChoices& fallbacks_;
};

}  // namespace kiln::runtime
