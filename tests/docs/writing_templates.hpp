// The worked example of docs/guide/write-a-template.md, as the page prints it.
#pragma once

#include "docs/page.hpp"

namespace kiln::test {

struct WorkedExample {
  std::string kernel, reference, manifest;  ///< texts of its three files
  std::string call;                         ///< C++ of an engine
  std::vector<std::string> commands;        ///< "kiln lint ...", in order
};

/// The example is all code of the page. The grammar has a page of its own.
inline WorkedExample worked_example() {
  const std::string page = read_source("docs/guide/write-a-template.md");
  const auto cpp = blocks(page, "cpp"), toml = blocks(page, "toml");
  WorkedExample out;
  EXPECT_EQ(cpp.size(), 3u);
  if (cpp.size() != 3) return out;
  out.kernel = cpp[0], out.reference = cpp[1], out.call = cpp[2];
  for (const std::string& part : toml) out.manifest += part + '\n';
  for (const std::string& block : blocks(page, "console")) {
    std::istringstream lines(block);
    for (std::string line; std::getline(lines, line);)
      if (line.rfind("$ ", 0) == 0) out.commands.push_back(line.substr(2));
  }
  return out;
}

}  // namespace kiln::test
