// What /proc tells of a process.
#pragma once

#include <cstdint>
#include <string>

namespace kiln::cli {

struct ProcessLook {
  enum class State { running, stopped, gone, unknown } state = State::unknown;
  std::string name;  ///< as in /proc/PID/comm
};
/// Of the process that had this pid at `at_ms` (boot clock); one that started later is another one: `gone`.
/// Unknown: there is no /proc.
ProcessLook look_at_process(std::int32_t pid, std::int64_t at_ms);

}  // namespace kiln::cli
