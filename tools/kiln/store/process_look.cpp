#include "tools/kiln/store/process_look.hpp"

#include <unistd.h>

#include <charconv>

#include "base/file.hpp"
#include "base/text.hpp"

namespace kiln::cli {
namespace {

/// Allowed difference: a tick is a hundredth of a second, and two clocks are read at different moments.
constexpr std::int64_t kSlackMs = 1000;
constexpr std::size_t kState = 0, kStart = 19;  // indices of the fields after the name, see proc(5)

}  // namespace

ProcessLook look_at_process(std::int32_t pid, std::int64_t at_ms) {
  using State = ProcessLook::State;
  const std::string stat = base::read_proc("/proc/" + std::to_string(pid) + "/stat");
  // In "4711 (a name) with) S 1 ..." the name may contain any characters, so the last ")" ends it.
  const std::size_t open = stat.find('('), close = stat.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close + 2 > stat.size())
    return {::access("/proc/self/stat", R_OK) == 0 ? State::gone : State::unknown, {}};
  const std::vector<std::string> fields = base::split(std::string_view(stat).substr(close + 2), ' ');
  std::int64_t ticks = 0;
  if (fields.size() <= kStart) return {};
  std::from_chars(fields[kStart].data(), fields[kStart].data() + fields[kStart].size(), ticks);
  if (ticks * 1000 / ::sysconf(_SC_CLK_TCK) > at_ms + kSlackMs) return {State::gone, {}};
  const char state = fields[kState].front();
  ProcessLook out;
  out.name = stat.substr(open + 1, close - open - 1);
  out.state = state == 'T' || state == 't'                   ? State::stopped
              : state == 'Z' || state == 'X' || state == 'x' ? State::gone
                                                             : State::running;
  return out;
}

}  // namespace kiln::cli
