// How a CUDA toolkit, a pip wheel and a conda environment lie on disk. Probes by name: no directory that may
// hold thousands of files is listed.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace kiln::toolchain {

/// A library that was found, still open; its path is symlink-resolved, and empty when there is none.
struct LibraryFile {
  std::string path;
  base::Fd file;
};

/// A compiler in one directory; without `builtins` when the directory has none that fit.
struct CompilerFiles {
  LibraryFile nvrtc, builtins;
};

/// The newest libnvrtc.so.N of `directory` with its builtins. libnvrtc.alt (the Windows data model) does not
/// count.
CompilerFiles compiler_in(const std::string& directory);

/// Names of directories below `root` that may hold the libraries: a toolkit's and a prefix's (conda); then, for a
/// root that has none of those, a wheel's (nvidia/cu13, nvidia/cuda_nvrtc). `root` itself may also be the
/// `nvidia` directory of a site-packages.
std::array<std::vector<std::string>, 2> library_dirs(const std::string& root);

bool exists(const std::string& path) noexcept;

/// The toolkit headers that belong to `root`, in search order (CUDA 13 keeps CCCL's in include/cccl); empty
/// when it has none.
std::vector<std::string> header_dirs(const std::string& root);

/// The root that a library directory belongs to: /opt/cuda for /opt/cuda/lib64.
std::string root_of_library_dir(const std::string& directory);

/// <prefix>/lib/python3*/{site,dist}-packages/nvidia, newest python first. Lists <prefix>/lib once.
std::vector<std::string> wheel_roots(const std::string& prefix);

/// "x86_64-linux-gnu".
extern const char* const kMultiarch;

}  // namespace kiln::toolchain
