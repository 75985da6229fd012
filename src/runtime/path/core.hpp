// The parts below the kernels of one service: its settings, the path, the seal, and the work that runs in the
// background.
#pragma once

#include <string>

#include "runtime/path/misses.hpp"
#include "runtime/path/path.hpp"
#include "runtime/state/background.hpp"
#include "runtime/state/recorder.hpp"
#include "runtime/tuned/choices.hpp"

namespace kiln::runtime {

/// Thread-safe. Everything above (kernels, scopes, the service) knows the core; the core knows nothing of it.
class Core {
 public:
  Core(const Options& options, const std::string& memo_file, Events events);
  ~Core() { stop(); }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  /// Ends the compiles that this service started, and waits for them and for the work in the background.
  /// Nothing is compiled or run afterwards.
  void stop() noexcept;

  const Config& config() const noexcept { return config_; }
  const Events& events() const noexcept { return state_.events; }
  ServiceState& state() noexcept { return state_; }
  Choices& choices() noexcept { return choices_; }
  Path& path() noexcept { return path_; }
  Background& background() noexcept { return background_; }
  bool adopts_automatically() const noexcept { return adopt_ == Adopt::automatically; }

  /// The permission of a call at this moment. Work that starts later asks again.
  Permission permission(const Asked& asked = {}) const noexcept { return misses_.permission(asked); }
  /// The seal, and the handling of kernels that are not ready.
  Misses& misses() noexcept { return misses_; }
  /// Records a kernel that was asked for and not ready (KILN_RECORD).
  void record(const source::Template& origin, const source::Resolved& resolved) noexcept {
    recorder_.record(origin, resolved);
  }
  /// Path::obtain. A kernel that may not be compiled is noted as missing.
  Obtained obtain(const source::Instantiation& unit, const ObtainOptions& options);
  /// ImageCompiler::compile_alone, as far as a call may compile now.
  compile::Compiled compile_alone(const source::Instantiation& unit, bool want_ptx,
                                  compile::Urgency urgency = compile::Urgency::caller) {
    return path_.compiler().compile_alone(unit, permission(), want_ptx, urgency);
  }
  /// Lets a worker open the compiler in the background when this process will soon need it, because nothing
  /// was ever cached where it looks.
  void expect_misses();

 private:
  const Config config_;
  const Adopt adopt_;
  Recorder recorder_;
  ServiceState state_;
  Choices choices_;
  Path path_;
  Misses misses_;  // outlives the background work, which notes misses
  Background background_;
};

}  // namespace kiln::runtime
