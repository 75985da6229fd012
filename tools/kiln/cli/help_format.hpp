// The layout of --help.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

namespace kiln::cli {

/// CLI11's formatter, with single blank lines, and no wider than the terminal.
std::shared_ptr<CLI::Formatter> help_format();

}  // namespace kiln::cli
