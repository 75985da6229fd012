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
#include <string_view>
#include <vector>

#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kNoReplace = 1;  // RENAME_NOREPLACE, which older headers lack

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw Error(Errc::io, "cannot " + what + " '" + path + "': " + std::strerror(errno));
}

constexpr std::string_view kStagingPrefix = ".kiln-restore-";
constexpr std::size_t kRandom = 6;  // characters that mkdtemp chooses
constexpr const char *kMarker = ".kiln-staging", *kTree = "tree";
constexpr int kAttempts = 100;

base::Fd open_directory(int parent, const char* name) {
  return base::Fd(::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool is_empty_directory(int fd) {
  base::Fd again = open_directory(fd, ".");
  const std::unique_ptr<DIR, int (*)(DIR*)> listed(again ? ::fdopendir(again.get()) : nullptr, ::closedir);
  if (!listed) return false;
  static_cast<void>(again.release());  // closedir closes it
  while (const dirent* const entry = ::readdir(listed.get()))
    if (std::string_view(entry->d_name) != "." && std::string_view(entry->d_name) != "..") return false;
  return true;
}

/// The marker goes last, so that a removal that is killed can be ended by another restore.
void remove_staging(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path + '/' + kTree, ignored);
  ::unlink((path + '/' + kMarker).c_str());
  ::rmdir(path.c_str());
}

/// Removes staging directories that no process has locked.
void remove_left_ones(const std::string& parent) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listed(::opendir(parent.c_str()), ::closedir);
  if (!listed) return;
  const int fd = ::dirfd(listed.get());
  std::vector<std::string> names;
  while (const dirent* const entry = ::readdir(listed.get()))
    if (is_staging(fd, entry->d_name)) names.emplace_back(entry->d_name);
  for (const std::string& name : names) {
    const base::Fd left = open_directory(fd, name.c_str());
    struct stat status {};
    if (!left || ::fstat(left.get(), &status) != 0 || status.st_uid != ::geteuid()) continue;
    if (::flock(left.get(), LOCK_EX | LOCK_NB) == 0) remove_staging(parent + '/' + name);
  }
}

/// Waits for the lock. False, with `errno` set, when there is an error.
bool lock_whole(int fd) {
  while (::flock(fd, LOCK_EX) != 0) {
    if (errno == ENOSYS || errno == ENOLCK || errno == EOPNOTSUPP) return true;  // a filesystem without locks
    if (errno != EINTR) return false;
  }
  return true;
}

}  // namespace

bool is_staging(int parent, const std::string& name) {
  if (!name.starts_with(kStagingPrefix) || name.size() != kStagingPrefix.size() + kRandom) return false;
  const base::Fd fd = open_directory(parent, name.c_str());
  if (!fd) return false;
  struct stat marker {};
  if (::fstatat(fd.get(), kMarker, &marker, AT_SYMLINK_NOFOLLOW) == 0)
    return S_ISREG(marker.st_mode) && marker.st_size == 0;
  return is_empty_directory(fd.get());
}

Staging::Staging(const std::string& parent) {
  remove_left_ones(parent);
  for (int attempt = 0; attempt < kAttempts; ++attempt)
    if (make(parent)) return;
  throw Error(Errc::io, "cannot make a directory in '" + parent + "': other processes remove it each time");
}

bool Staging::make(const std::string& parent) {
  outer_ = parent + '/' + std::string(kStagingPrefix) + std::string(kRandom, 'X');
  if (!::mkdtemp(outer_.data())) fail("make a directory in", parent);
  const auto give_up = [&](const std::string& what) {
    const int error = errno;
    remove_staging(outer_);
    errno = error;
    fail(what, outer_);
  };
  // Another restore may take it for one that was left, and remove it before it is locked.
  lock_ = open_directory(AT_FDCWD, outer_.c_str());
  if (!lock_ && errno == ENOENT) return false;
  if (!lock_) give_up("open the directory");
  if (!lock_whole(lock_.get())) give_up("lock the directory");
  struct stat open {
  }, named{};
  if (::fstat(lock_.get(), &open) != 0) give_up("read the directory");
  if (::lstat(outer_.c_str(), &named) != 0) {
    if (errno == ENOENT) return false;
    give_up("read the directory");
  }
  if (open.st_dev != named.st_dev || open.st_ino != named.st_ino) return false;
  const base::Fd marker(
      ::openat(lock_.get(), kMarker, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!marker || ::mkdirat(lock_.get(), kTree, 0700) != 0) give_up("write into the directory");
  fd_ = open_directory(lock_.get(), kTree);
  if (!fd_) give_up("write into the directory");
  path_ = outer_ + '/' + kTree;
  return true;
}

Staging::~Staging() { remove_staging(outer_); }

bool Staging::become(const std::string& root, unsigned mode) {
  if (::fchmod(fd_.get(), mode | 0700) != 0) fail("change the mode of", path_);
  if (!rename_if_absent(AT_FDCWD, path_.c_str(), AT_FDCWD, root.c_str())) {
    if (errno != EEXIST && errno != ENOTEMPTY) fail("rename a directory to", root);
    return false;
  }
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
