// Completion of the word at the cursor. The shell scripts ask this executable, so an old script still knows
// today's templates, keys and flags.
#pragma once

#include <string>

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

inline constexpr const char* kCompleteCommand = "__complete";

/// Adds the command to `app`, which is `kiln`. Its words are the words after `kiln`; the last one may be
/// incomplete. It prints to stdout
///   :        or :files, :dirs when the shell is to offer these, too
///   CANDIDATE<tab>description
/// The exit status is always kDone, because a shell cannot show an error here.
void add_complete(Command app, Context& context);

/// The script for "bash", "zsh" or "fish"; null for another shell.
const char* completion_script(const std::string& shell) noexcept;

}  // namespace kiln::cli
