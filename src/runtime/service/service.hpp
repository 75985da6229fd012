// The service behind kiln_service: catalog, pipeline, scopes, mode and seal.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "runtime/kernels/kernel_template.hpp"
#include "runtime/kernels/scope.hpp"
#include "runtime/state/background.hpp"
#include "runtime/state/capture_guard.hpp"
#include "runtime/state/events.hpp"
#include "runtime/state/missing.hpp"
#include "runtime/state/process_seal.hpp"
#include "runtime/state/recorder.hpp"
#include "source/catalog.hpp"

namespace kiln::runtime {

class Service {
 public:
  explicit Service(const Options& options, const std::string& memo_file = default_memo_file(),
                   Events events = {});
  /// Ends the compiles that it started; waits for them and for the work behind callers' backs.
  ~Service();

  /// In the service's own scope.
  KernelTemplate& open(const std::string& name, int device, const std::string& arch) {
    return own_.open(name, device, arch);
  }
  Scope& own_scope() noexcept { return own_; }
  std::shared_ptr<const source::Template> add(const source::MemoryTemplate& in) { return catalog_.add(in); }
  /// What a template for this device will run on. Throws Error.
  Target bind(int device, const std::string& arch) const;
  /// Templates that are opened without a device take the choices that were tuned on the one of this name.
  /// REQUIRES: none was opened yet.
  void tune_for(std::string device_name) { tuned_for_ = std::move(device_name); }

  /// A service that was told mode jit or warn keeps it, and says once that the seal changes nothing.
  void seal();
  /// The mode that holds now: a seal, of this service or of the process, makes a mode that nobody set sealed.
  Mode mode() const noexcept;
  bool may_compile() const noexcept { return mode() != Mode::sealed; }
  /// From memory only.
  bool is_sealed() const noexcept { return mode() == Mode::sealed && (sealed_ || process_is_sealed()); }
  /// Tells of a miss after the seal. True when it must be refused. Touches no file.
  bool misses(const source::Template& origin, const source::Resolved& resolved);
  /// Throws Error(not_ready) with the plan row when it must.
  void refuse_when_sealed(const source::Template& origin, const source::Resolved& resolved);
  /// For `missing()`, and for the job that fills the fleet's tier, which nobody waits for.
  void note_missing(const source::Resolved& resolved);
  /// What was refused, as a plan.
  std::string missing() { return missing_.plan(); }
  /// Writes down what was asked for and was not ready (KILN_RECORD).
  void record(const source::Template& origin, const source::Resolved& resolved) noexcept {
    recorder_.record(origin, resolved);
  }
  /// Pipeline::obtain; what it may not compile is noted as missing.
  Obtained obtain(const source::Instantiation& unit, const ObtainOptions& options);

  bool adopts_automatically() const noexcept { return adopt_ == Adopt::automatically; }
  std::uint64_t adopt();
  /// Over what is loaded in all scopes.
  Digest fingerprint();

  Pipeline& pipeline() noexcept { return pipeline_; }
  Background& background() noexcept { return background_; }
  const Events& events() const noexcept { return events_; }
  source::Catalog& catalog() noexcept { return catalog_; }
  const Config& config() const noexcept { return config_; }
  /// The arch for work without a device: `arch`, else the configured one, else sm_90a.
  base::Arch default_arch(const std::string& arch) const;

 private:
  friend class Scope;
  void enter(Scope& scope);
  void leave(Scope& scope) noexcept;
  /// Of all scopes. They stay while they are looked at, and no lock is held: events may come of it.
  std::vector<std::shared_ptr<KernelTemplate>> templates();

  const Config config_;
  const Mode mode_;
  const bool mode_is_set_;
  const Adopt adopt_;
  const Events events_;
  std::string tuned_for_;
  std::atomic<bool> sealed_{false};
  source::Catalog catalog_;
  Recorder recorder_;
  Missing missing_;
  Pipeline pipeline_;
  Background background_;
  struct Scopes {
    std::mutex mutex;
    std::set<Scope*> all;
  };
  base::PerProcess<Scopes> scopes_;
  Scope own_;  // goes first: kernels are unloaded while everything is there
};

}  // namespace kiln::runtime
