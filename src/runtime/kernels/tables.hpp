// The kernels that one template has loaded and is loading: plain data that the loader, the fallback and the
// work in the background share.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/process.hpp"
#include "runtime/kernels/family.hpp"
#include "runtime/kernels/ready_table.hpp"
#include "runtime/kernels/wanted.hpp"
#include "runtime/launch/loaded_kernel.hpp"

namespace kiln::runtime {

using KernelFuture = std::shared_future<const LoadedKernel*>;
/// Keeps a template, and so its tables, alive while work in the background uses them.
using KeepAlive = std::shared_ptr<const void>;

/// One load of one kernel; calls that come meanwhile wait for its result.
struct Loading {
  std::promise<const LoadedKernel*> promise;
  KernelFuture result = promise.get_future().share();
  std::uint64_t epoch = 0;
  std::pair<source::Which, std::string> key;
  std::atomic<bool> begun{false};  ///< the thread that sets it does the load
};

/// A call that runs its fallback until its specialised kernel is there and adopted.
struct PendingFallback {
  Wanted wanted;
  std::vector<PackedParameters> keys;  ///< keys under which the fallback was returned
};

/// A kernel whose image was made for another arch that the device runs, too.
struct KernelOfOtherArch {
  std::string name;
  const LoadedKernel* kernel = nullptr;
  const LoadedKernel* better = nullptr;  ///< from the image of the device's own arch; null: not made yet
};

struct KernelTables {
  /// A forked child starts with its own: it has none of the threads that hold the mutex or finish a load.
  struct State {
    std::mutex mutex;  // guards what follows, and writing to the tables
    std::vector<std::unique_ptr<LoadedKernel>> kernels;
    std::vector<std::unique_ptr<KernelFamily>> families;  ///< of `kernels`
    std::map<std::pair<source::Which, std::string>, std::shared_ptr<Loading>> loading;
    std::set<std::string> behind;          ///< being made ahead of need, in this epoch
    std::vector<PendingFallback> pending;  ///< fallbacks whose specialised kernels were not there
    std::vector<KernelOfOtherArch> other_arch;
    /// Kernels whose place a kernel of the device's own arch has taken, and that kernel.
    std::map<const LoadedKernel*, const LoadedKernel*> replaced;
    /// The kernel that a table may hold instead of `kernel`, which a caller found before.
    const LoadedKernel* newest(const LoadedKernel* kernel) const {
      const auto found = replaced.find(kernel);
      return found == replaced.end() ? kernel : found->second;
    }
    std::uint64_t epoch = 0;  ///< counts releases
  };

  ReadyTable& of(source::Which which) noexcept { return which == source::Which::kernel ? ready : references; }

  ReadyTable ready, references;
  ReadyTable chosen;  ///< what get_or_fallback has settled on
  base::PerProcess<State> state;
};

}  // namespace kiln::runtime
