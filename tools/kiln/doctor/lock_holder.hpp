// The second process of doctor's lock probes: the same executable, under a command that --help does not show.
#pragma once

namespace kiln::cli {

inline constexpr const char* kLockHolderCommand = "__hold-lock";

/// Takes a lock, writes one byte to stdout, and holds the lock until stdin ends.
/// - `what` "gate": the writers' lock of the store in directory `where`;
/// - `what` "flight": the flight lock of Key{} for the store identity `where`.
/// Returns the exit status: 1 when the lock could not be taken.
int hold_lock(const char* what, const char* where) noexcept;

}  // namespace kiln::cli
