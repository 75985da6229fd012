// Completion of the word at the cursor. The shell scripts ask this executable, so an old script still knows
// today's templates, keys and flags.
#pragma once

#include <string>
#include <vector>

#include "tools/kiln/cli/command_tree.hpp"
#include "tools/kiln/cli/context.hpp"

namespace kiln::cli {

inline constexpr const char* kCompleteCommand = "__complete";

/// `words` are the words after `kiln`; the last one may be incomplete. Prints to stdout
///   :        or :files, :dirs when the shell is to offer these, too
///   CANDIDATE<tab>description
/// Always returns kDone, because a shell cannot show an error here.
int complete(const CommandPage& root, Context& context, const std::vector<std::string>& words) noexcept;

/// The script for "bash", "zsh" or "fish"; null for another shell.
const char* completion_script(const std::string& shell) noexcept;

}  // namespace kiln::cli
