// The places of files in a CUDA toolkit, a pip wheel and a conda environment. Files are probed by name, so no
// directory is listed that may hold thousands of files.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace kiln::toolchain {

/// A library that was found and is still open. Symlinks in its path are resolved; the path is empty
/// when there is no library.
struct LibraryFile {
  std::string path;
  base::Fd file;
};

/// A compiler in one directory; without `builtins` when no matching ones are there.
struct CompilerFiles {
  LibraryFile nvrtc, builtins;
};

/// The newest libnvrtc.so.N of `directory` with its builtins. Ignores libnvrtc.alt, which has
/// the Windows data model.
CompilerFiles compiler_in(const std::string& directory);

/// Names of directories below `root` that may hold the libraries. The first list is for a toolkit and a
/// prefix (conda). The second is for a root without any of those: a wheel (nvidia/cu13, nvidia/cuda_nvrtc),
/// or the `nvidia` directory of a site-packages.
std::array<std::vector<std::string>, 2> library_dirs(const std::string& root);

bool exists(const std::string& path) noexcept;

/// The toolkit headers that belong to `root`, in search order; empty when there are none. CUDA 13 has CCCL's
/// headers in include/cccl.
std::vector<std::string> header_dirs(const std::string& root);

/// The root that a library directory belongs to: /opt/cuda for /opt/cuda/lib64.
std::string root_of_library_dir(const std::string& directory);

/// The directories <prefix>/{lib,lib64}/python3*/{site,dist}-packages/nvidia, newest python first.
/// Lists <prefix>/lib and <prefix>/lib64 once.
std::vector<std::string> wheel_roots(const std::string& prefix);
/// The `nvidia` directories beside kiln's own Python package, when kiln's program or library in `object_directory` belongs to one
/// (kiln/bin, kiln/lib). The wheels of NVRTC hold no module of an interpreter, so Fedora's Python puts them below lib and
/// kiln below lib64.
std::vector<std::string> wheel_roots_beside(const std::string& object_directory);

/// "x86_64-linux-gnu".
extern const char* const kMultiarch;

}  // namespace kiln::toolchain
