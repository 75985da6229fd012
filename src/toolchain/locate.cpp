#include "toolchain/locate.hpp"

#include <algorithm>
#include <exception>

#include "base/file.hpp"
#include "base/text.hpp"
#include "toolchain/library_identity.hpp"
#include "toolchain/toolkit_layout.hpp"

namespace kiln::toolchain {
namespace {

/// The absolute, normalised path without a slash at its end.
std::string normal_directory(const std::string& path) {
  std::string out = base::normalized(base::absolute(path).value_or(path));
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

class Search {
 public:
  explicit Search(Toolkit& out) : out_(out) {}

  bool done() const { return out_.has_compiler() && !out_.include_dirs.empty(); }

  /// Searches one root. `origin` says in `tried` why this place was searched.
  void root(const std::string& path, const char* origin) {
    if (path.empty() || done()) return;
    const std::string root = normal_directory(path);
    if (!note(root, origin)) return;
    if (!out_.has_compiler() && take_compiler_below(root)) return take_headers_with(root);
    take_headers(root);
  }

  /// Searches a directory of the loader's path: libraries in it, headers beside it.
  void library_directory(const std::string& path, const char* origin) {
    if (path.empty() || done()) return;
    const std::string directory = normal_directory(path);
    if (!note(directory, origin)) return;
    const std::string root = root_of_library_dir(directory);
    if (!out_.has_compiler() && take_compiler(directory)) return take_headers_with(root);
    take_headers(root);
  }

 private:
  bool note(const std::string& path, const char* origin) {
    for (const std::string& seen : seen_)
      if (seen == path) return false;
    seen_.push_back(path);
    out_.tried.push_back(path + " (" + origin + ')');
    return true;
  }

  /// Directories after the one with the compiler are not probed: each would cost a call in the first
  /// get of every process.
  bool take_compiler_below(const std::string& root) {
    for (const std::vector<std::string>& directories : library_dirs(root)) {
      bool any = false;
      for (const std::string& directory : directories) {
        if (!exists(directory)) continue;
        if (take_compiler(directory)) return true;
        any = true;
      }
      if (any) return false;
    }
    return false;
  }

  bool take_compiler(const std::string& directory) {
    const CompilerFiles files = compiler_in(directory);
    if (files.nvrtc.path.empty()) return false;
    const bool complete = !files.builtins.path.empty();
    if (!complete) out_.tried.back() += ": " + files.nvrtc.path + " has no libnvrtc-builtins beside it";
    if (!complete && !out_.compiler.library.empty()) return false;
    out_.compiler = {files.nvrtc.path, files.builtins.path};
    out_.compiler_identity = library_identity(files.nvrtc.file);
    if (complete) out_.builtins_identity = library_identity(files.builtins.file);
    return complete;
  }

  void take_headers(const std::string& root) {
    if (out_.include_dirs.empty()) out_.include_dirs = header_dirs(root);
  }

  /// Takes the compiler's own headers, even when an earlier place had headers.
  void take_headers_with(const std::string& root) {
    if (auto own = header_dirs(root); !own.empty()) out_.include_dirs = std::move(own);
  }

  Toolkit& out_;
  std::vector<std::string> seen_;
};

void search_all(const ToolkitSearch& options, Search& search) {
  if (!options.cuda_home.empty()) return search.root(options.cuda_home, "the configured CUDA home");
  const auto env = [&](const char* name) {
    return std::string(options.use_environment ? base::environment(name) : std::string_view());
  };

  search.root(env("CUDA_HOME"), "CUDA_HOME");
  search.root(env("CUDA_PATH"), "CUDA_PATH");
  for (const std::string& directory : base::split(env("LD_LIBRARY_PATH"), ':'))
    search.library_directory(directory, "LD_LIBRARY_PATH");
  for (const std::string& directory : {std::string("/usr/lib/") + kMultiarch, std::string("/usr/lib64")})
    search.library_directory(directory, "the loader's path");
  search.root("/usr/local/cuda", "the standard toolkit");

  for (const std::string& root : wheel_roots_beside(base::own_object_directory()))
    search.root(root, "pip packages");
  for (const std::string& directory : base::split(env("PYTHONPATH"), ':')) {
    const std::string root = directory + "/nvidia";
    if (!directory.empty() && exists(root)) search.root(root, "PYTHONPATH");
  }
  const std::string home = env("HOME");
  const std::string prefixes[] = {env("VIRTUAL_ENV"), env("CONDA_PREFIX"),
                                  home.empty() ? "" : home + "/.local", "/usr/local", "/usr"};
  for (const std::string& prefix : prefixes) {
    if (prefix.empty() || search.done()) continue;
    if (prefix == prefixes[1]) search.root(prefix, "CONDA_PREFIX");
    for (const std::string& root : wheel_roots(prefix)) search.root(root, "pip packages");
  }
}

}  // namespace

Toolkit locate_toolkit(const ToolkitSearch& options) {
  Toolkit out;
  try {
    Search search(out);
    search_all(options, search);
  } catch (const std::exception&) {  // out of memory: keeps what was found so far
  }
  return out;
}

}  // namespace kiln::toolchain
