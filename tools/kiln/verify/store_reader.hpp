// The process that reads a store for `kiln verify`: what a damaged file, a failing disk or a bug does to it
// is reported by its parent. The same executable under a name that --help does not show.
#pragma once

namespace kiln::cli {

inline constexpr const char* kStoreReaderCommand = "__verify-store";

/// Verifies the store in `directory` and writes to stdout, one JSON object a line:
///   {"total": N}     entries that there seem to be, when that can be told
///   {"done": N}      intact entries so far
///   {"damaged": {"key", "what"[, "template", "params", "arch"]}}
///   {"verified": {"entries", "bytes"}}   the last line, or
///   {"error": "..."}                     it cannot be read at all
/// Returns the exit status.
int read_store_for_parent(const char* directory) noexcept;

}  // namespace kiln::cli
