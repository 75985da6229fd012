// The owner of opened templates and of their kernels.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "base/process.hpp"
#include "runtime/kernels/kernel_template.hpp"

namespace kiln::runtime {

/// Thread-safe but for release and destruction. A forked child opens anew.
class Scope {
 public:
  explicit Scope(Service& service);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  /// KILN_DEVICE_CURRENT, KILN_DEVICE_NONE or an ordinal; the same template for the same context every time,
  /// until its manifest changes: then a new one, and the old one's kernels stay.
  KernelTemplate& open(const std::string& name, int device, const std::string& arch);
  KernelTemplate& open(const std::string& name, const Target& target);
  /// Unloads the kernels; templates stay open. REQUIRES: no reader.
  void release();
  const Service& service() const noexcept { return service_; }
  /// All that were ever opened.
  std::vector<std::shared_ptr<KernelTemplate>> templates();

 private:
  std::shared_ptr<KernelTemplate> open_alone(const std::string& name, const Target& target);

  struct State {
    std::mutex mutex;  // guards what follows
    std::map<std::tuple<std::string, toolchain::CUcontext, std::uint64_t, int>,
             std::shared_ptr<KernelTemplate>>
        opened;
    std::vector<std::shared_ptr<KernelTemplate>> templates;  ///< all that were ever opened
  };
  Service& service_;
  base::PerProcess<State> state_;
};

}  // namespace kiln::runtime
