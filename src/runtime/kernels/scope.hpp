// The owner of opened templates and of their kernels.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/process.hpp"
#include "manifest/catalog.hpp"
#include "runtime/kernels/kernel_template.hpp"

namespace kiln::runtime {

class Scope;

/// The state that the scopes of one service share. Thread-safe. A forked child starts without scopes.
class Scopes {
 public:
  /// Both arguments must outlive it.
  Scopes(Core& core, source::Catalog& catalog) : core_(core), catalog_(catalog) {}
  Scopes(const Scopes&) = delete;
  Scopes& operator=(const Scopes&) = delete;

  Core& core() const noexcept { return core_; }
  source::Catalog& catalog() const noexcept { return catalog_; }
  /// The target of a template that is opened for this device. Throws Error.
  Target bind(int device, const std::string& arch) const {
    return runtime::bind(core_.config(), device, arch, tuned_for_);
  }
  /// Templates that are opened without a device take the choices that were tuned on the device of this name.
  /// REQUIRES: no template was opened yet.
  void tune_for(std::string device_name) { tuned_for_ = std::move(device_name); }
  /// The templates of all scopes, `own` first. A forked child has `own` without having entered it. The result
  /// keeps the templates alive, so the caller holds no lock while it uses them and may cause events.
  std::vector<std::shared_ptr<KernelTemplate>> templates(Scope& own);

 private:
  friend class Scope;
  void enter(Scope& scope);
  void leave(Scope& scope) noexcept;

  struct State {
    std::mutex mutex;
    std::set<Scope*> all;
  };
  Core& core_;
  source::Catalog& catalog_;
  std::string tuned_for_;
  base::PerProcess<State> state_;
};

/// Thread-safe except for release and destruction. A forked child opens its templates again.
class Scope {
 public:
  explicit Scope(Scopes& all);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  /// `device`: KILN_DEVICE_CURRENT, KILN_DEVICE_NONE or an ordinal. Returns the same template for the same
  /// context until its manifest changes. Then it returns a new template, and the kernels of the old one stay.
  KernelTemplate& open(const std::string& name, int device, const std::string& arch);
  KernelTemplate& open(const std::string& name, const Target& target);
  /// Unloads the kernels; templates stay open. REQUIRES: no reader.
  void release();
  /// The scopes of the same service.
  const Scopes& siblings() const noexcept { return all_; }
  /// All templates that were ever opened in this scope.
  std::vector<std::shared_ptr<KernelTemplate>> templates();

 private:
  std::shared_ptr<KernelTemplate> open_alone(const std::string& name, const Target& target);

  struct State {
    std::mutex mutex;  // guards what follows
    std::map<std::tuple<std::string, toolchain::CUcontext, std::uint64_t, base::Arch>,
             std::shared_ptr<KernelTemplate>>
        opened;
    std::vector<std::shared_ptr<KernelTemplate>> templates;  ///< all that were ever opened
  };
  Scopes& all_;
  base::PerProcess<State> state_;
};

}  // namespace kiln::runtime
