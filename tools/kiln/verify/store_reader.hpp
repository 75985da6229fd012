// The process that reads a store for `kiln verify`. A damaged file, a failing disk or a bug may kill it; its
// parent reports that. It is the same executable, under a command that --help does not show.
#pragma once

namespace kiln::cli {

inline constexpr const char* kStoreReaderCommand = "__verify-store";

/// Verifies the store in `directory`, and writes one JSON object on each line of stdout:
/// - {"total": N}     number of entries in the store, when it can be read
/// - {"done": N}      intact entries so far
/// - {"damaged": {"key", "what"[, "template", "params", "arch"]}}
/// - {"verified": {"entries", "bytes"}}   the last line, or
/// - {"error": "..."}                     the store cannot be read at all
///
/// Returns the exit status.
int read_store_for_parent(const char* directory) noexcept;

}  // namespace kiln::cli
