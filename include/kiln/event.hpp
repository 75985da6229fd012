// The events that a service reports to the engine.
#pragma once

#include <cstdint>
#include <string_view>

#include "kiln/kiln.h"

namespace kiln {
inline namespace v1 {

/// One event. The views live for the call. kiln.h (KILN_EVENT_*) says which fields each kind sets.
struct Event {
  enum class Kind : int {
    compile_started = KILN_EVENT_COMPILE_STARTED,
    compile_finished = KILN_EVENT_COMPILE_FINISHED,
    compile_failed = KILN_EVENT_COMPILE_FAILED,
    wait_started = KILN_EVENT_WAIT_STARTED,
    wait_finished = KILN_EVENT_WAIT_FINISHED,
    loaded = KILN_EVENT_LOADED,
    evicted = KILN_EVENT_EVICTED,
    miss_after_seal = KILN_EVENT_MISS_AFTER_SEAL,
    adopted = KILN_EVENT_ADOPTED,
  };
  Kind kind = Kind::compile_started;
  std::string_view specialization;  ///< "rms_norm T=bf16 H=4096"
  std::string_view arch;            ///< "sm_90a"
  std::string_view message;         ///< failures: the first line of the error
  double milliseconds = 0;
  std::uint64_t count = 0, bytes = 0;
};

}  // namespace v1
}  // namespace kiln
