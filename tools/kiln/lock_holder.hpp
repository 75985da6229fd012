// The other process of doctor's lock probe: the same executable under a name that --help does not show.
#pragma once

namespace kiln::cli {

inline constexpr const char* kLockHolderCommand = "__hold-lock";

/// Takes the probe's range of `path` exclusively, writes one byte to stdout, and holds it until stdin ends.
/// Returns the exit status; 1 when the lock could not be taken.
int hold_lock(const char* path) noexcept;

}  // namespace kiln::cli
