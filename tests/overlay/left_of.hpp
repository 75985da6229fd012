// Cuts a text for a test, and gives the rest.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "overlay/cut.hpp"

namespace kiln::source {

/// The rules of host_code = "cut-unused".
inline const CutRules kCutUnused{{"kernel"}, {}, {}, {}, true};

inline std::string cut_one(const std::string& text, const CutRules& rules = {{"kernel"}, {}, {}}) {
  const CutTexts out = cut_host_code({text}, rules);
  EXPECT_EQ(out.texts.at(0).size(), text.size());
  EXPECT_EQ(std::count(out.texts[0].begin(), out.texts[0].end(), '\n'),
            std::count(text.begin(), text.end(), '\n'));
  return out.texts[0];
}
/// The rest of a text after a cut, without empty lines and without blanks around lines.
inline std::string left_of(const std::string& text, const CutRules& rules = {{"kernel"}, {}, {}}) {
  const std::string cut = cut_one(text, rules);
  std::string out;
  for (std::size_t at = 0; at < cut.size();) {
    const std::size_t end = std::min(cut.find('\n', at), cut.size());
    std::string line = cut.substr(at, end - at);
    line.erase(line.find_last_not_of(" \r") + 1);
    line.erase(0, line.find_first_not_of(' '));
    if (!line.empty()) out += line + '\n';
    at = end + 1;
  }
  return out;
}

}  // namespace kiln::source
