// The second process of doctor's lock probes: the same executable, under a command that --help does not show.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

inline constexpr const char* kLockHolderCommand = "__hold-lock";

/// Adds the command, whose words are WHAT and WHERE. It takes a lock, writes one byte to stdout, and holds the
/// lock until stdin ends.
/// - WHAT "gate": the writers' lock of the store in directory WHERE;
/// - WHAT "flight": the flight lock of Key{} for the store identity WHERE.
/// The exit status is 1 when the lock could not be taken.
void add_lock_holder(Command app, Context& context);

}  // namespace kiln::cli
