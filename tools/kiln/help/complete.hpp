// What may stand where the cursor is: the shells' completion asks this executable, so that a script made once
// knows the templates, keys and flags of today.
#pragma once

#include <string>
#include <vector>

#include "tools/kiln/cli/command_tree.hpp"
#include "tools/kiln/cli/context.hpp"

namespace kiln::cli {

inline constexpr const char* kCompleteCommand = "__complete";

/// Words after `kiln`, the last one as far as it is typed. Prints to stdout
///   :        or :files, :dirs when the shell shall offer these, too
///   CANDIDATE<tab>what it is
/// and returns kDone, whatever goes wrong: a shell has no place for an error.
int complete(const CommandPage& root, Context& context, const std::vector<std::string>& words) noexcept;

/// The script for "bash", "zsh" or "fish"; null for another shell.
const char* completion_script(const std::string& shell) noexcept;

}  // namespace kiln::cli
