// Facts of a process from /proc.
#pragma once

#include <cstdint>
#include <string>

namespace kiln::cli {

struct ProcessLook {
  enum class State { running, stopped, gone, unknown } state = State::unknown;
  std::string name;  ///< as in /proc/PID/comm
};
/// Looks at the process that had this pid at `at_ms` (boot clock). A process that started later is another
/// one, and the answer is `gone`. The answer is `unknown` when there is no /proc.
ProcessLook look_at_process(std::int32_t pid, std::int64_t at_ms);

}  // namespace kiln::cli
