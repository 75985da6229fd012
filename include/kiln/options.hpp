// How a Service is configured in code.
#pragma once

#include <functional>
#include <string>

#include "kiln/event.hpp"

namespace kiln {
inline namespace v1 {

enum class Mode : int {
  by_default = KILN_MODE_DEFAULT,  ///< KILN_MODE, else jit until a seal, then sealed
  jit = KILN_MODE_JIT,             ///< compile what is missing
  warn = KILN_MODE_WARN,           ///< the same, and log each compile after seal()
  sealed = KILN_MODE_SEALED,       ///< never compile: disk hits load until seal(), then memory only
};

/// When a specialised kernel replaces the fallback that was returned in its place.
enum class Adopt : int {
  when_asked = KILN_ADOPT_WHEN_ASKED,        ///< in Service::adopt()
  automatically = KILN_ADOPT_AUTOMATICALLY,  ///< as soon as it is ready
};

/// Empty and zero mean: KILN_* environment, then the configuration file, then the default. See kiln_options
/// in kiln.h.
struct Options {
  std::string cache_dir, cache_layers, cache_max_size, template_path, include_path, cuda_home, toolchain,
      arch, worker;
  Mode mode = Mode::by_default;
  int jobs = 0;
  double compile_deadline_s = 0;
  bool ignore_environment = false;
  std::string record, compile_memory;
  /// Told of compiles, waits, loads and misses as they happen, on whichever thread; see kiln_event_callback.
  /// What it throws is swallowed.
  std::function<void(const Event&)> on_event;
  Adopt adopt = Adopt::when_asked;
  /// The fleet's tier (docs/guide/fleet.md): servers, locked or fleet, trusted public keys, the secret key that
  /// signs, how long a compile of another node is waited for, never or ask.
  std::string remote, remote_mode, remote_key, remote_sign;
  double remote_budget_s = 0;
  std::string remote_sealed;

  /// Ignores environment and configuration files: what is not set here has its built-in default.
  static Options hermetic() {
    Options options;
    options.ignore_environment = true;
    return options;
  }
};

}  // namespace v1
}  // namespace kiln
