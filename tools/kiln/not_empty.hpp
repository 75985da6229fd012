// Options whose value may not be empty.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace kiln::cli {

/// For options that a command does without when they are not given: a script whose variable is unset must not
/// get less than it asked for, such as an import without a signature. Returns `option`.
inline CLI::Option* not_empty(CLI::Option* option) {
  return option->check(
      [](const std::string& value) {
        return value.empty() ? std::string("its value is empty") : std::string();
      },
      "");
}

}  // namespace kiln::cli
