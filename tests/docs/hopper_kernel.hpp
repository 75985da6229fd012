// The kernel of docs/guide/hopper-kernel.md, as the page prints it.
#pragma once

#include "base/text.hpp"
#include "docs/page.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {

/// The code of the section whose heading has `title`, in one text.
inline std::string code_of(const std::string& page, const std::string& title, const std::string& language) {
  const std::size_t heading = page.find("\n## " + title);
  EXPECT_NE(heading, std::string::npos) << title;
  if (heading == std::string::npos) return {};
  std::string out;
  for (const std::string& block :
       blocks(page.substr(heading, page.find("\n## ", heading + 4) - heading), language))
    out += (out.empty() ? "" : "\n") + block;
  return out;
}

class HopperKernel : public KilnCompiler {
 protected:
  void SetUp() override {
    KilnCompiler::SetUp();
    const std::string page = read_source("docs/guide/hopper-kernel.md");
    write("templates/hopper_gemm.cu", code_of(page, "The kernel", "cpp"));
    write("templates/hopper_gemm.reference.cu", code_of(page, "The reference", "cpp"));
    write("templates/hopper_gemm.toml", code_of(page, "The manifest", "toml"));
    for (const std::string& block : blocks(page, "console")) {
      std::istringstream lines(block);
      for (std::string line; std::getline(lines, line);) {
        if (line.rfind("$ kiln ", 0) == 0) commands_.push_back(base::split(line.substr(7), ' '));
      }
    }
  }
  /// The page's command that begins with this word, without the "kiln" before it.
  Arguments command(const std::string& word) const {
    for (const Arguments& words : commands_)
      if (words.front() == word) return words;
    ADD_FAILURE() << "the page has no command " << word;
    return {};
  }
  std::vector<Arguments> commands_;
};

}  // namespace kiln::test
