// Finds NVRTC, its builtins and the toolkit's headers, and their identity, without loading any of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace kiln::toolchain {

/// Paths of a compiler's libraries.
struct CompilerLibraries {
  std::string library;   ///< absolute path of libnvrtc.so.N; empty when none was found
  std::string builtins;  ///< absolute path of the libnvrtc-builtins beside it; empty when there is none
};

struct Toolkit {
  CompilerLibraries compiler;
  std::string compiler_identity, builtins_identity;  ///< see library_identity.hpp; empty when unknown
  std::vector<std::string> include_dirs;  ///< toolkit header directories, absolute, in search order
  std::vector<std::string> tried;         ///< every place that was searched, for the error text

  bool has_compiler() const noexcept { return !compiler.library.empty() && !compiler.builtins.empty(); }
};

struct ToolkitSearch {
  std::string cuda_home;        ///< KILN_CUDA_HOME or Options; when it is set, no other place is searched
  bool use_environment = true;  ///< CUDA_HOME, CUDA_PATH, LD_LIBRARY_PATH and the python environment
};

/// Search order: cuda_home, CUDA_HOME, CUDA_PATH, the loader's path, /usr/local/cuda, the directories
/// of pip packages. The first place with a complete NVRTC (library and builtins) gives the
/// compiler. Headers come from the same root when it has them, else from the first place that has some. Never
/// throws: parts that were not found are empty.
Toolkit locate_toolkit(const ToolkitSearch& search);

}  // namespace kiln::toolchain
