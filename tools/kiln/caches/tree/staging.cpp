#include "tools/kiln/caches/tree/staging.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "kiln/error.hpp"
#include "tools/kiln/caches/tree/walk.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kNoReplace = 1;  // RENAME_NOREPLACE, which older headers lack

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw Error(Errc::io, "cannot " + what + " '" + path + "': " + std::strerror(errno));
}

bool is_same(int fd, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

base::Fd open_directory(const std::string& path) {
  return base::Fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

/// Removes staging directories that no process has locked.
void remove_left_ones(const std::string& parent) {
  std::vector<std::string> names;
  {
    const std::unique_ptr<DIR, int (*)(DIR*)> listed(::opendir(parent.c_str()), ::closedir);
    while (const dirent* const entry = listed ? ::readdir(listed.get()) : nullptr)
      if (std::string_view(entry->d_name).starts_with(kStagingPrefix)) names.emplace_back(entry->d_name);
  }
  for (const std::string& name : names) {
    const std::string path = parent + '/' + name;
    const base::Fd fd = open_directory(path);
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0 || status.st_uid != ::geteuid()) continue;
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
}

}  // namespace

Staging::Staging(const std::string& parent) {
  remove_left_ones(parent);
  while (!fd_) {
    path_ = parent + '/' + kStagingPrefix + "XXXXXX";
    if (!::mkdtemp(path_.data())) fail("make a directory in", parent);
    base::Fd fd = open_directory(path_);
    // Another restore may take it for one that was left, and remove it before it is locked.
    if (fd && ::flock(fd.get(), LOCK_EX) == 0 && is_same(fd.get(), path_)) fd_ = std::move(fd);
  }
}

Staging::~Staging() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

bool Staging::become(const std::string& root, unsigned mode) {
  if (::fchmod(fd_.get(), mode | 0700) != 0) fail("change the mode of", path_);
  if (!rename_if_absent(AT_FDCWD, path_.c_str(), AT_FDCWD, root.c_str())) {
    if (errno != EEXIST && errno != ENOTEMPTY) fail("rename a directory to", root);
    return false;
  }
  path_.clear();
  return true;
}

void make_directories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw Error(Errc::io, "cannot make the directory '" + path + "': " + error.message());
}

bool rename_if_absent(int from_directory, const char* from, int to_directory, const char* to) noexcept {
  if (::syscall(SYS_renameat2, from_directory, from, to_directory, to, kNoReplace) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  // A filesystem without the flag, such as NFS: the file may appear between the two calls.
  struct stat status {};
  if (::fstatat(to_directory, to, &status, AT_SYMLINK_NOFOLLOW) == 0) {
    errno = EEXIST;
    return false;
  }
  return ::renameat(from_directory, from, to_directory, to) == 0;
}

}  // namespace kiln::cli
