// The worked example of docs/guide/write-a-template.md in the place where the page puts it,
// and the page's commands.
#pragma once

#include "base/text.hpp"
#include "docs/writing_templates.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {

class WritingTemplates : public KilnCompiler {
 protected:
  void SetUp() override {
    KilnCompiler::SetUp();
    write("templates/add_bias_gelu.cu", example_.kernel);
    write("templates/add_bias_gelu.reference.cu", example_.reference);
    write("templates/add_bias_gelu.toml", example_.manifest);
  }
  /// The page's commands that begin with this word, without the "kiln" before it.
  std::vector<Arguments> commands(const std::string& word) const {
    std::vector<Arguments> out;
    for (const std::string& command : example_.commands) {
      Arguments words = base::split(command, ' ');
      EXPECT_EQ(words.front(), "kiln") << command;
      words.erase(words.begin());
      if (words.front() == word) out.push_back(words);
    }
    return out;
  }
  const WorkedExample example_ = worked_example();
};

}  // namespace kiln::test
