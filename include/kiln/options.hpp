// The configuration of a Service in code.
#pragma once

#include <functional>
#include <string>

#include "kiln/event.hpp"

namespace kiln {
inline namespace v1 {

/// A mode says when a service may compile.
enum class Mode : int {
  by_default = KILN_MODE_DEFAULT,  ///< KILN_MODE, or else jit until a seal and sealed after it
  jit = KILN_MODE_JIT,             ///< compile what is missing
  warn = KILN_MODE_WARN,      ///< compile what is missing, and report each compile after seal() as an event
  sealed = KILN_MODE_SEALED,  ///< never compile: kernels load from disk until seal(), then only from memory
};

/// When a specialised kernel replaces the fallback that was returned in its place.
enum class Adopt : int {
  when_asked = KILN_ADOPT_WHEN_ASKED,        ///< in Service::adopt()
  automatically = KILN_ADOPT_AUTOMATICALLY,  ///< as soon as it is ready
};

/// The configuration of a Service. kiln_options in kiln.h documents each field.
/// For an empty or zero field the service takes the KILN_* environment variable, else the configuration file,
/// else the default.
struct Options {
  std::string cache_dir, cache_layers, cache_max_size, template_path, include_path, cuda_home, toolchain,
      arch, worker;
  Mode mode = Mode::by_default;
  int jobs = 0;
  double compile_deadline_s = 0;
  bool ignore_environment = false;
  std::string record, compile_memory;
  /// Receives compiles, waits, loads and misses on the threads on which they happen (kiln_event_callback).
  /// Exceptions that it throws are swallowed.
  std::function<void(const Event&)> on_event;
  Adopt adopt = Adopt::when_asked;
  /// The fleet's tier (docs/guide/fleet.md).
  std::string remote, remote_mode, remote_key, remote_sign;
  double remote_budget_s = 0;
  std::string remote_sealed;

  /// Options that ignore environment and configuration file. Fields that are not set have their defaults.
  static Options hermetic() {
    Options options;
    options.ignore_environment = true;
    return options;
  }
};

}  // namespace v1
}  // namespace kiln
