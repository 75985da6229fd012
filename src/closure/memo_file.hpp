// What the files have in common that processes of one user leave each other for the time of one boot.
#pragma once

#include <string>

#include "base/fd.hpp"

namespace kiln::source {

/// Empty when the kernel does not tell: then nothing is remembered.
std::string boot_id();

/// For reading, when it is a regular file that belongs to this user, that nobody else may touch and that no
/// symlink leads to; invalid otherwise.
base::Fd open_memo(const std::string& file) noexcept;

}  // namespace kiln::source
