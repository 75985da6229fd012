// The identity that tells two builds of a shared library apart: its build-id, or else a digest of its bytes.
#pragma once

#include <string>

#include "base/fd.hpp"

namespace kiln::toolchain {

/// The identity of an open shared library, as it stands in a key: the hex digits of its GNU build-id. A library
/// without a build-id has "xxh3-128:" and the digest of its bytes in hex. NVIDIA's libnvrtc-builtins for
/// aarch64 is such a library, and has 4 to 7 MB. A process reads such a file once, unless the file changes.
///
/// Returns "" for what is not an ELF file, is not a regular file, or cannot be read. A key that depends on
/// such a library must not be used. Thread-safe.
std::string library_identity(const base::Fd& file);

/// An identity for people: "build-id 65be0db342ad", "digest 0123456789ab" or "no identity".
std::string identity_text(const std::string& identity);

}  // namespace kiln::toolchain
