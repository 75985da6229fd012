// How a CUDA toolkit, a pip wheel and a conda environment lie on disk. Probes by name: no directory that may
// hold thousands of files is listed.
#pragma once

#include <string>
#include <vector>

namespace kiln::toolchain {

/// A compiler in one directory; `builtins` is empty when the directory has none that fits. Paths are
/// symlink-resolved.
struct CompilerFiles {
  std::string nvrtc, builtins;
};

/// The newest libnvrtc.so.N of `directory` with its builtins. libnvrtc.alt (the Windows data model) does not
/// count.
CompilerFiles compiler_in(const std::string& directory);

/// Directories below `root` that may hold the libraries: a toolkit's, a wheel's (nvidia/cu13,
/// nvidia/cuda_nvrtc), a prefix's (conda). `root` itself may also be the `nvidia` directory of a
/// site-packages.
std::vector<std::string> library_dirs(const std::string& root);

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
