// Reads pages of docs/ for tests.
#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "support/places.hpp"

namespace kiln::test {

/// The text of a file of the source tree. A missing file fails the test.
inline std::string read_source(const std::string& file) {
  const auto found = base::read_file(std::string(places::kSourceDirectory) + '/' + file);
  EXPECT_TRUE(found) << file;
  return found ? found->bytes : std::string();
}

/// The code blocks between ```LANGUAGE and ```, in the page's order.
inline std::vector<std::string> blocks(const std::string& page, const std::string& language) {
  std::vector<std::string> out;
  bool inside = false, wanted = false;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("```", 0) == 0) {
      inside = !inside;
      wanted = inside && line == "```" + language;
      if (wanted) out.emplace_back();
    } else if (wanted) {
      out.back() += line + '\n';
    }
  }
  return out;
}

}  // namespace kiln::test
