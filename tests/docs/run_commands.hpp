// The commands that docs/reference/templates.md gives for trying the templates.
#pragma once

#include "base/text.hpp"
#include "docs/page.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {

/// The arguments after "kiln" of each indented line "kiln run ...".
inline std::vector<Arguments> run_commands(const std::string& page) {
  std::vector<Arguments> out;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("    kiln run ", 0) != 0) continue;
    Arguments words = base::split(line, ' ');
    words.erase(words.begin());
    out.push_back(words);
  }
  return out;
}

}  // namespace kiln::test
