#include "compile/backend/confinement.hpp"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <set>
#include <unordered_map>

#include "base/fd.hpp"
#include "base/file.hpp"

namespace kiln::compile {
namespace {

using Access = std::uint64_t;

// These rights belong to newer kernels than the headers of this build.
constexpr Access kTruncate = 1u << 14, kIoctlDevice = 1u << 15;

constexpr Access kReadFile = LANDLOCK_ACCESS_FS_READ_FILE;
constexpr Access kRead = kReadFile | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr Access kWrite = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                          LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR |
                          LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SYM | kTruncate;

/// Every right that this kernel knows to withhold; 0 without Landlock.
Access known_to_kernel() noexcept {
  const long abi = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi < 1) return Access{0};
  Access all = (Access{1} << 13) - 1;
  if (abi >= 2) all |= LANDLOCK_ACCESS_FS_REFER;
  if (abi >= 3) all |= kTruncate;
  if (abi >= 5) all |= kIoctlDevice;
  return all;
}

class Ruleset {
 public:
  explicit Ruleset(Access handled) noexcept : handled_(handled) {
    // This is the structure's first version: later fields (network, signals) are not handled.
    const struct { Access filesystem; } attribute{handled};
    fd_ = base::Fd(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attribute, sizeof attribute, 0)));
  }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }

  /// Allows a file, or a directory with everything below it; symlinks in `path` are followed. Returns true
  /// for a path that does not exist or cannot be reached, because there is nothing to allow.
  bool allow(const std::string& path, Access access) noexcept {
    const base::Fd beneath(::open(path.c_str(), O_PATH | O_CLOEXEC));
    struct stat st;
    if (!beneath || ::fstat(beneath.get(), &st) != 0)
      return errno == ENOENT || errno == ENOTDIR || errno == EACCES;
    if (!S_ISDIR(st.st_mode)) access &= kReadFile | LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;
    const landlock_path_beneath_attr rule{access & handled_, beneath.get()};
    return ::syscall(SYS_landlock_add_rule, fd_.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
  }
  bool enforce() noexcept {
    // Both calls concern this thread alone. An unprivileged thread may not restrict itself without the first.
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::syscall(SYS_landlock_restrict_self, fd_.get(), 0) == 0;
  }

 private:
  Access handled_;
  base::Fd fd_;
};

/// Paths where a dlopen during the compile may find a library, and files that the C library reads by itself.
std::vector<std::string> system_paths(const WorkerRequest& request) {
  std::vector<std::string> out{base::directory_of(request.compiler.library),
                               base::directory_of(request.compiler.builtins),
                               "/usr/lib",
                               "/usr/lib64",
                               "/lib",
                               "/lib64",
                               "/etc/ld.so.cache",
                               "/etc/localtime"};
  const char* more = std::getenv("LD_LIBRARY_PATH");
  for (std::string_view rest = more ? more : ""; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(':'));
    if (one.starts_with('/') && one.size() > 1) out.emplace_back(one);
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
  }
  return out;
}

std::string real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  return real ? real.get() : "";
}

}  // namespace

bool confine_compile(const WorkerRequest& request, const std::string& private_directory,
                     const std::vector<std::string>& writable,
                     const std::vector<std::string>& readable) noexcept try {
  const Access known = known_to_kernel();
  if (known == 0) return false;
  Ruleset rules(known);
  if (!rules) return false;
  bool complete = true;
  for (const auto& [name, path] : request.roots) complete = rules.allow(path, kRead) && complete;
  for (const std::string& path : request.linked) complete = rules.allow(path, kRead) && complete;
  for (const std::string& path : system_paths(request)) rules.allow(path, kRead);
  for (const std::string& path : readable) complete = rules.allow(path, kRead) && complete;
  for (const std::string& path : writable) complete = rules.allow(path, kRead | kWrite) && complete;
  complete = rules.allow(private_directory, kRead | kWrite) && complete;
  // Allows to remove the private directory after the compile. The C++ library first tries
  // to remove it as a file.
  const std::string parent = base::directory_of(private_directory);
  complete = rules.allow(parent, LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE) && complete;
  // With a rule missing, a correct compile would fail: then nothing is enforced.
  return complete && rules.enforce();
} catch (const std::bad_alloc&) {
  return false;
}

std::vector<std::string> linked_from(const source::Closure& closure) {
  std::vector<std::string> roots;
  for (const source::Root& root : closure.roots) roots.push_back(real_path(root.path) + '/');
  const auto inside = [&](const std::string& path) {
    return std::any_of(roots.begin(), roots.end(), [&](const auto& root) { return path.starts_with(root); });
  };
  std::unordered_map<std::string, std::string> directories;  // path as named -> real path
  std::set<std::string> out;
  for (const source::ClosureFile& file : closure.files) {
    const std::string directory = base::directory_of(file.path);
    const auto [known, fresh] = directories.try_emplace(directory);
    if (fresh) known->second = real_path(directory);
    char unused;
    const bool is_link = ::readlink(file.path.c_str(), &unused, 1) >= 0;
    const std::string real =
        is_link ? real_path(file.path) : known->second + file.path.substr(directory.size());
    if (real.empty() || inside(real)) continue;
    const std::string relative = file.symbolic.substr(file.symbolic.find('/'));  // "/cuda/std/x.h"
    const bool whole = file.toolkit && real.ends_with(relative) && real.size() > relative.size();
    out.insert(whole ? real.substr(0, real.size() - relative.size()) : real);
  }
  return {out.begin(), out.end()};
}

}  // namespace kiln::compile
