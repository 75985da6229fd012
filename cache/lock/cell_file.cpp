#include "cache/lock/cell_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/file_size_signal.hpp"
#include "base/hash.hpp"
#include "base/wire.hpp"

namespace kiln::cache {
namespace {

constexpr std::uint32_t kFormat = 1;

bool read_exactly(int fd, char* to, std::size_t size, std::int64_t at) noexcept {
  return ::pread(fd, to, size, at) == static_cast<ssize_t>(size);
}

/// Writing beyond the file-size limit would raise SIGXFSZ, which ends a process by default.
bool within_file_size_limit(std::int64_t end) noexcept {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
         static_cast<std::uint64_t>(end) <= limit.rlim_cur;
}

}  // namespace

CellFile::CellFile(std::string path, std::uint64_t salt)
    : path_(std::move(path)),
      salt_(salt),
      owner_(::geteuid()),
      pool_(path_, O_RDWR | O_NOFOLLOW | O_NONBLOCK) {}

CellFile::CellFile(std::string path, std::uint64_t salt, uid_t owner)
    : path_(std::move(path)), salt_(salt), owner_(owner), pool_(path_, O_RDONLY | O_NOFOLLOW | O_NONBLOCK) {}

FdPool::Lease CellFile::open(Create create) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    FdPool::Lease fd = pool_.lease();
    if (!fd && errno == ENOENT && create == Create::yes) {
      const base::Fd made(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      continue;
    }
    struct stat st {
    }, at_path{};
    if (!fd || ::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != owner_) return {};
    if (::lstat(path_.c_str(), &at_path) == 0 && at_path.st_ino == st.st_ino && at_path.st_dev == st.st_dev)
      return fd;
    fd.discard();
  }
  return {};
}

std::optional<std::string> CellFile::read(int fd, std::int64_t at, std::uint32_t magic,
                                          std::size_t limit) const {
  char head[kHeadBytes];
  if (!read_exactly(fd, head, sizeof head, at)) return std::nullopt;
  base::Reader in({head, sizeof head});
  if (in.number<std::uint32_t>() != magic || in.number<std::uint32_t>() != kFormat) return std::nullopt;
  const auto size = in.number<std::uint32_t>();
  const auto sum = in.number<std::uint64_t>();
  if (size > limit) return std::nullopt;
  std::string body(size, '\0');
  if (!read_exactly(fd, body.data(), size, at + static_cast<std::int64_t>(kHeadBytes))) return std::nullopt;
  if ((base::hash64(body) ^ salt_) != sum) return std::nullopt;
  return body;
}

bool CellFile::write(int fd, std::int64_t at, std::uint32_t magic, std::string_view body) const noexcept try {
  base::Writer out;
  out.number(magic).number(kFormat).number(static_cast<std::uint32_t>(body.size()));
  out.number(base::hash64(body) ^ salt_);
  out.str() += body;
  const std::string& bytes = out.str();
  if (!within_file_size_limit(at + static_cast<std::int64_t>(bytes.size()))) return false;
  const base::NoFileSizeSignal no_signal;
  return ::pwrite(fd, bytes.data(), bytes.size(), at) == static_cast<ssize_t>(bytes.size());
} catch (...) {
  return false;
}

}  // namespace kiln::cache
