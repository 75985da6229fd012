// What a template has loaded and is loading. Private to kernel_template*.cpp.
#pragma once

#include "runtime/kernels/kernel_template.hpp"

namespace kiln::runtime {

/// One load of one kernel; those who come meanwhile wait for its result.
struct KernelTemplate::Loading {
  std::promise<const LoadedKernel*> promise;
  KernelFuture result = promise.get_future().share();
  std::uint64_t epoch = 0;
  std::pair<source::Which, std::string> key;
  std::atomic<bool> begun{false};  ///< whoever sets it does it
};

/// Makes the template's context current, and then again what was: a task may run in a caller's thread, when
/// there is no other to be had or when the service goes.
class CurrentContext {
 public:
  CurrentContext(const Target& target, const std::string& doing) : driver_(target.driver) {
    if (!driver_) return;
    target.check_context(doing);
    driver_->check(driver_->cuCtxGetCurrent(&before_), "cuCtxGetCurrent", doing);
    driver_->check(driver_->cuCtxSetCurrent(target.context), "cuCtxSetCurrent", doing);
  }
  ~CurrentContext() {
    if (driver_) driver_->cuCtxSetCurrent(before_);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const toolchain::Driver* driver_;
  toolchain::CUcontext before_ = nullptr;
};

/// A forked child starts with its own: it has none of the threads that hold the mutex or finish a load.
struct KernelTemplate::State {
  struct Pending {
    Wanted wanted;
    std::vector<PackedParameters> keys;  ///< under which the fallback was returned
  };
  std::mutex mutex;  // guards what follows, and writing to the ready tables
  std::vector<std::unique_ptr<LoadedKernel>> kernels;
  std::map<std::pair<source::Which, std::string>, std::shared_ptr<Loading>> loading;
  std::set<std::string> behind;  ///< being made ahead of need, in this epoch
  std::vector<Pending> pending;  ///< fallbacks whose specialised kernels were not there
  std::uint64_t epoch = 0;       ///< counts releases
};

}  // namespace kiln::runtime
