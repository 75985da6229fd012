// The kiln command on a pseudo-terminal.
#pragma once

#include <string>

#include "tools/kiln_process.hpp"

namespace kiln::test {

struct TerminalRun {
  int status = -1;
  std::string screen;  ///< everything written to stdout and stderr
};
/// `typed` is typed on the terminal meanwhile.
TerminalRun run_on_terminal(int columns, const Arguments& arguments, const Environment& environment,
                            const std::string& typed = {});

/// The lines without escape codes. Text that a carriage return has overwritten is removed.
std::vector<std::string> visible_lines(const std::string& screen);

}  // namespace kiln::test
