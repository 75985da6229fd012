// The kiln command on a pseudo-terminal.
#pragma once

#include <string>

#include "tools/kiln_process.hpp"

namespace kiln::test {

struct TerminalRun {
  int status = -1;
  std::string screen;  ///< everything written, stdout and stderr together
};
/// `typed` is what somebody types meanwhile.
TerminalRun run_on_terminal(int columns, const Arguments& arguments, const Environment& environment,
                            const std::string& typed = {});

/// Without escape codes; what a carriage return has overwritten is gone.
std::vector<std::string> visible_lines(const std::string& screen);

}  // namespace kiln::test
