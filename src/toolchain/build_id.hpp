// Reads the build-id of a shared library from its headers and notes alone: libnvrtc is 100 MB.
#pragma once

#include <optional>
#include <string>

#include "base/fd.hpp"

namespace kiln::toolchain {

/// The GNU build-id of a shared library as hex. The library is not loaded, and only its headers and notes are
/// read. Nothing when there is no such file or note.
std::optional<std::string> build_id_of(const std::string& path);
/// The build-id of an open file.
std::optional<std::string> build_id_of(const base::Fd& file);

}  // namespace kiln::toolchain
