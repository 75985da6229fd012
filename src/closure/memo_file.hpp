// Common parts of the memo files that processes of one user leave for each other until the next boot.
#pragma once

#include <string>

#include "base/fd.hpp"

namespace kiln::source {

/// The kernel's boot id. Empty when the kernel has none: then nothing is remembered.
std::string boot_id();

/// Opens a memo for reading. Invalid unless it is a regular file of this user that nobody else may
/// access, and not a symlink.
base::Fd open_memo(const std::string& file) noexcept;

}  // namespace kiln::source
