#include "tools/kiln/caches/profile/distributions.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/file.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/cli/child_process.hpp"

namespace kiln::cli {
namespace {

std::string normalised(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const bool separates = c == '-' || c == '_' || c == '.';
    if (separates && (out.empty() || out.back() == '-')) continue;
    out += separates ? '-' : static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  return out;
}

/// The value of a key of pyvenv.cfg; empty when the file has none.
std::string value_in(const std::string& config, const std::string& key) {
  for (const std::string& line : base::split(config, '\n')) {
    const auto equals = line.find('=');
    if (equals == std::string::npos || !line.starts_with(key)) continue;
    const auto begin = line.find_first_not_of(' ', equals + 1);
    return begin == std::string::npos ? "" : line.substr(begin, line.find_last_not_of(" \r") + 1 - begin);
  }
  return {};
}

std::string interpreter(const std::string& python) {
  if (!python.empty()) return python.find('/') == std::string::npos ? find_program(python, {}) : python;
  const auto environment = base::environment("VIRTUAL_ENV");
  return environment.empty() ? find_program("python3", {}) : std::string(environment) + "/bin/python";
}

/// The answer of an interpreter about itself.
struct Introduction {
  std::string version;            ///< "3.12"
  std::vector<std::string> path;  ///< sys.path
};

constexpr int kPatience_ms = 30'000;  // a script may start an environment first
/// Begins with a line end, which is the byte that a wait consumes. A script may print lines of its own before.
constexpr const char* kQuestion =
    "import sys; print('\\nkiln-python', '%d.%d' % sys.version_info[:2], *sys.path, sep='\\n')";

/// Starts the interpreter once. Nothing when it cannot be started or gives another answer.
std::optional<Introduction> introduction_of(const std::string& interpreter) try {
  ChildProcess child({interpreter, "-c", kQuestion});
  child.close_input();
  if (!child.wait_for_byte(kPatience_ms)) return std::nullopt;
  const std::vector<std::string> lines = base::split(child.read_all(), '\n');
  const auto begin = std::find(lines.begin(), lines.end(), "kiln-python");
  if (child.wait() != 0 || lines.end() - begin < 2) return std::nullopt;
  return Introduction{begin[1], {begin + 2, lines.end()}};
} catch (const Error&) {
  return std::nullopt;
}

}  // namespace

PythonPackages::PythonPackages(const std::string& python) {
  const std::string path = interpreter(python);
  if (path.empty() || ::access(path.c_str(), X_OK) != 0) return;
  // The first that names a distribution wins, as in sys.path.
  for (const std::string& directory : base::split(base::environment("PYTHONPATH"), ':')) read(directory);
  std::error_code error;
  const std::string real = std::filesystem::canonical(path, error).string();
  const auto named = real.rfind("/python3.");
  if (named != std::string::npos) version_ = real.substr(named + 7);
  const std::string prefix = base::directory_of(base::directory_of(base::absolute(path).value_or(path)));
  const auto config = base::read_file(prefix + "/pyvenv.cfg");
  if (config) {
    const std::string full = value_in(config->bytes, "version");
    const auto parts = base::split(full, '.');
    if (parts.size() >= 2) version_ = parts[0] + '.' + parts[1];
  }
  if (version_ == kNone) {
    if (const auto own = introduction_of(path)) {
      version_ = own->version;
      for (const std::string& directory : own->path) read(directory);
      return;
    }
  }
  search(prefix);
  if (config && value_in(config->bytes, "include-system-site-packages") != "true") return;
  const auto user = base::environment("HOME");
  if (!user.empty()) read(std::string(user) + "/.local/lib/python" + version_ + "/site-packages");
  if (!real.empty()) search(base::directory_of(base::directory_of(real)));
}

void PythonPackages::search(const std::string& prefix) {
  for (const char* library : {"/lib/python", "/lib64/python", "/local/lib/python"})
    for (const char* kind : {"/site-packages", "/dist-packages"}) read(prefix + library + version_ + kind);
  read(prefix + "/lib/python3/dist-packages");  // Debian's packages of every version
}

void PythonPackages::read(const std::string& site) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listed(::opendir(site.c_str()), ::closedir);
  if (!listed) return;
  constexpr std::string_view ending = ".dist-info";
  while (const dirent* const entry = ::readdir(listed.get())) {
    const std::string_view name = entry->d_name;
    const auto dash = name.rfind('-', name.size() > ending.size() ? name.size() - ending.size() - 1 : 0);
    if (!name.ends_with(ending) || dash == std::string_view::npos || dash == 0) continue;
    versions_.emplace(normalised(name.substr(0, dash)),
                      std::string(name.substr(dash + 1, name.size() - ending.size() - dash - 1)));
  }
}

std::string PythonPackages::version_of(const std::string& distribution) const {
  const auto found = versions_.find(normalised(distribution));
  return found == versions_.end() ? kNone : found->second;
}

}  // namespace kiln::cli
