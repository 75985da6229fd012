// The process that reads a store for `kiln verify`. A damaged file, a failing disk or a bug may kill it; its
// parent reports that. It is the same executable, under a command that --help does not show.
#pragma once

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

inline constexpr const char* kStoreReaderCommand = "__verify-store";

/// Adds the command, whose word is DIR. It verifies the store in DIR, and writes one JSON object on each line
/// of stdout:
/// - {"total": N}     number of entries in the store, when it can be read
/// - {"done": N}      intact entries so far
/// - {"damaged": {"key", "what"[, "template", "params", "arch"]}}
/// - {"verified": {"entries", "bytes"}}   the last line, or
/// - {"error": "..."}                     the store cannot be read at all
void add_store_reader(Command app, Context& context);

}  // namespace kiln::cli
