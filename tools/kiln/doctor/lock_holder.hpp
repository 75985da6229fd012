// The other process of doctor's lock probes: the same executable under a name that --help does not show.
#pragma once

namespace kiln::cli {

inline constexpr const char* kLockHolderCommand = "__hold-lock";

/// `what` is "gate": the writers' lock of the store in directory `where`; or "flight": that of Key{} for the
/// store identity `where`. Takes it, writes one byte to stdout, and holds it until stdin ends. Returns the
/// exit status; 1 when it could not be taken.
int hold_lock(const char* what, const char* where) noexcept;

}  // namespace kiln::cli
