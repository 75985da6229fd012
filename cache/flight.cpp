#include "cache/flight.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/hash.hpp"
#include "base/log.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

constexpr int kReplacedLimit = 100;  // a file that is replaced this often during one take is not usable

/// Throws Error(io) unless the descriptor is of a regular file that belongs to this user.
struct stat checked(const FdPool::Lease& fd, const std::string& path) {
  const auto refuse = [&path](const std::string& why) {
    throw Error(Errc::io, "lock file " + path + ": " + why);
  };
  if (!fd) refuse(errno == ELOOP ? "is a symlink; refused" : std::strerror(errno));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) refuse(std::strerror(errno));
  if (!S_ISREG(st.st_mode)) refuse("not a regular file; refused");
  if (st.st_uid != ::geteuid()) refuse("belongs to uid " + std::to_string(st.st_uid) + "; refused");
  return st;
}

std::int64_t offset_of(const Key& key) {
  std::string bytes(reinterpret_cast<const char*>(key.specialisation.bytes.data()), 16);
  bytes.append(reinterpret_cast<const char*>(key.toolchain.bytes.data()), 16);
  return static_cast<std::int64_t>(base::hash64(bytes) >> 2);
}

std::optional<RangeLock> wait_for(int fd, std::int64_t offset, const Key& key, const std::string& path,
                                  base::Deadline deadline) {
  const auto mode = RangeLock::Mode::exclusive;
  auto lock = RangeLock::acquire(fd, offset, mode, earlier(deadline, base::Deadline::after(2s)));
  if (lock || deadline.passed()) return lock;
  base::warn("waiting for 2 s for another process or thread that compiles " + key.hex() + " (lock " + path +
             ")");
  return RangeLock::acquire(fd, offset, mode, deadline);
}

}  // namespace

FlightFile::FlightFile(const std::string& directory, const std::string& store_identity)
    : path_(directory + "/kiln-" + std::to_string(::geteuid()) + "-" + store_identity + ".flight"),
      pool_(std::make_unique<FdPool>(path_, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK)) {
  checked(pool_->lease(), path_);
}

FlightFile::~FlightFile() = default;

FlightFile::Taken FlightFile::take(const Key& key, base::Deadline deadline) {
  const std::int64_t offset = offset_of(key);
  Taken out;
  for (int attempt = 0; attempt < kReplacedLimit; ++attempt) {
    FdPool::Lease fd = pool_->lease();
    const struct stat held = checked(fd, path_);
    auto lock = RangeLock::acquire(fd.get(), offset, RangeLock::Mode::exclusive, base::Deadline::after(0s));
    if (!lock) {
      out.waited = true;
      lock = wait_for(fd.get(), offset, key, path_, deadline);
      if (!lock) return out;
    }
    struct stat now {};
    if (::lstat(path_.c_str(), &now) == 0 && now.st_dev == held.st_dev && now.st_ino == held.st_ino) {
      out.flight = std::make_unique<Flight>(std::move(fd), std::move(*lock));
      return out;
    }
    lock->release();
    fd.discard();
  }
  throw Error(Errc::io,
              "lock file " + path_ + ": is replaced again and again; does something clean the directory?");
}

}  // namespace kiln::cache
