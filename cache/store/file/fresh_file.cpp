#include "cache/store/file/fresh_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "base/fd.hpp"
#include "base/file.hpp"
#include "cache/store/file/write_transaction.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

constexpr const char* kChooseAnother = "choose a directory that this user may write with KILN_CACHE_DIR";
constexpr const char* kTemporary = ".new-";
constexpr std::int64_t kOwnerLives = kGateOffset + 3;  // the byte that a temporary file's owner locks

bool names(const std::string& path, int fd) noexcept {
  struct stat named {
  }, held{};
  return ::lstat(path.c_str(), &named) == 0 && ::fstat(fd, &held) == 0 && S_ISREG(named.st_mode) &&
         named.st_dev == held.st_dev && named.st_ino == held.st_ino;
}

}  // namespace

void throw_store_error(const std::string& path, const std::string& why, const std::string& remedy) {
  throw Error(Errc::io, "store " + path + ": " + why + (remedy.empty() ? "" : "; " + remedy));
}

void create_directories(const std::string& path) {
  struct stat st {};
  if (path.empty() || (::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode))) return;
  const std::string parent = base::directory_of(path);
  if (parent != path && parent != ".") create_directories(parent);
  if (::mkdir(path.c_str(), 0700) == 0) return;
  const int error = errno;
  if (error == EEXIST && ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode))
    return;  // another process made it
  throw_store_error(path, std::string("cannot create the directory: ") + std::strerror(error),
                    kChooseAnother);
}

FreshFile::FreshFile(const std::string& path, std::uint64_t map_bytes) : path_(path) {
  while (!lock_) create_locked();
  int rc = mdb_env_create(&env_);
  if (rc == 0 && map_bytes > 0) rc = mdb_env_set_mapsize(env_, map_bytes);
  if (rc == 0)
    rc = mdb_env_open(env_, name_.c_str(), MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOSYNC | MDB_NORDAHEAD, 0600);
  if (rc == 0) return;
  if (env_) mdb_env_close(std::exchange(env_, nullptr));
  ::unlink(name_.c_str());
  throw_store_error(path, mdb_strerror(rc));
}

/// A process that removes leftovers may find the file before it is locked, lock it and remove it.
/// Then `lock_` stays empty.
void FreshFile::create_locked() {
  name_ = path_ + kTemporary + "XXXXXX";
  fd_.emplace(::mkostemp(name_.data(), O_CLOEXEC));
  if (!*fd_) throw_store_error(path_, std::strerror(errno), kChooseAnother);
  try {
    const auto now = base::Deadline::after(base::Clock::duration::zero());
    lock_ = RangeLock::acquire(fd_->get(), kOwnerLives, RangeLock::Mode::exclusive, now);
  } catch (...) {
    ::unlink(name_.c_str());
    throw;
  }
  if (!names(name_, fd_->get())) lock_.reset();
}

FreshFile::~FreshFile() {
  if (env_) mdb_env_close(env_);
  ::unlink(name_.c_str());
}

void FreshFile::sync() {
  if (env_) mdb_env_close(std::exchange(env_, nullptr));
  const base::Fd fd(::open(name_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) throw LmdbError("store " + path_ + ": sync of a fresh file", errno);
}

int FreshFile::probe() const noexcept {
  const base::Fd fd(::open(name_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!fd) return errno;
  const std::array<char, 65536> zeros{};
  const ssize_t wrote = ::write(fd.get(), zeros.data(), zeros.size());
  return wrote < 0 ? errno : wrote < static_cast<ssize_t>(zeros.size()) ? ENOSPC : 0;
}

bool FreshFile::link_to_path() {
  sync();
  bool placed = ::link(name_.c_str(), path_.c_str()) == 0;
  if (!placed && errno != EEXIST) {
    // This filesystem has no hard links. When two processes rename at once, the inode check of every
    // operation tells their files apart.
    if (::access(path_.c_str(), F_OK) == 0) return false;
    if (::rename(name_.c_str(), path_.c_str()) != 0)
      throw_store_error(path_, std::strerror(errno), kChooseAnother);
    placed = true;
  }
  sync_directory_of(path_);
  return placed;
}

void FreshFile::replace() {
  sync();
  struct stat st {};  // a layer's file stays readable for others
  if (::stat(path_.c_str(), &st) == 0) ::chmod(name_.c_str(), st.st_mode & 0666);
  if (::rename(name_.c_str(), path_.c_str()) != 0)
    throw_store_error(path_, std::strerror(errno), kChooseAnother);
  sync_directory_of(path_);
}

void create_data_file(const std::string& path) { FreshFile(path).link_to_path(); }

std::string damaged_name(const std::string& path) { return path + ".damaged"; }

void remove_leftovers(const std::string& path) noexcept try {
  const std::string directory = base::directory_of(path);
  const std::string prefix = path.substr(directory.size() + 1) + kTemporary;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(directory.c_str()), ::closedir);
  while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr) {
    if (!std::string_view(entry->d_name).starts_with(prefix)) continue;
    const std::string name = directory + '/' + entry->d_name;
    const base::ClosedAtFork fd(::open(name.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (!fd || !names(name, fd.get())) continue;
    const auto now = base::Deadline::after(base::Clock::duration::zero());
    if (RangeLock::acquire(fd.get(), kOwnerLives, RangeLock::Mode::exclusive, now)) ::unlink(name.c_str());
  }
} catch (...) {  // no memory: a later sweep removes them
}

void sync_directory_of(const std::string& path) {
  const base::Fd fd(::open(base::directory_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd) ::fsync(fd.get());  // best effort: without it a power loss may undo the rename
}

}  // namespace kiln::cache
