// What a template has loaded and is loading. Private to kernel_template*.cpp.
#pragma once

#include "runtime/kernel_template.hpp"

namespace kiln::runtime {

/// One load of one kernel; those who come meanwhile wait for its result.
struct KernelTemplate::Loading {
  std::promise<const LoadedKernel*> promise;
  KernelFuture result = promise.get_future().share();
  std::uint64_t epoch = 0;
};

/// A forked child starts with its own: it has none of the threads that hold the mutex or finish a load.
struct KernelTemplate::State {
  struct Pending {
    std::string name;
    PackedParameters exact;
    std::vector<PackedParameters> keys;  ///< under which the fallback was returned
  };
  std::mutex mutex;  // guards what follows, and writing to the ready tables
  std::vector<std::unique_ptr<LoadedKernel>> kernels;
  std::map<std::pair<source::Which, std::string>, std::shared_ptr<Loading>> loading;
  std::set<std::string> behind;  ///< being made ahead of need
  std::vector<Pending> pending;  ///< fallbacks whose specialised kernels were not there
  std::uint64_t epoch = 0;       ///< counts releases
};

}  // namespace kiln::runtime
