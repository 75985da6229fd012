#include "base/file.hpp"

#include <dlfcn.h>
#include <fcntl.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "base/fd.hpp"
#include "kiln/error.hpp"

namespace kiln::base {
namespace fs = std::filesystem;

namespace {

/// The stamp of a regular file. Anything else gives nothing, with errno set.
std::optional<FileStamp> stamp_of(int directory, const char* path, int flags) noexcept {
  struct statx st;
  if (::statx(directory, path, flags,
              STATX_TYPE | STATX_SIZE | STATX_INO | STATX_MTIME | STATX_CTIME | STATX_MNT_ID, &st) != 0) {
    return std::nullopt;
  }
  if (!S_ISREG(st.stx_mode)) {
    errno = S_ISDIR(st.stx_mode) ? EISDIR : EINVAL;
    return std::nullopt;
  }
  const auto ns = [](const statx_timestamp& t) { return t.tv_sec * 1'000'000'000LL + t.tv_nsec; };
  const std::uint64_t device = std::uint64_t{st.stx_dev_major} << 32 | st.stx_dev_minor;
  const std::uint64_t mount = st.stx_mask & STATX_MNT_ID ? st.stx_mnt_id : 0;
  return FileStamp{device, st.stx_ino, st.stx_size, mount, ns(st.stx_mtime), ns(st.stx_ctime)};
}

}  // namespace

std::optional<FileStamp> FileStamp::of(const std::string& path) noexcept {
  return stamp_of(AT_FDCWD, path.c_str(), 0);
}

std::optional<FileStamp> FileStamp::of(int directory, const char* path) noexcept {
  return stamp_of(directory, path, 0);
}

std::optional<FileStamp> FileStamp::of_open(int fd) noexcept { return stamp_of(fd, "", AT_EMPTY_PATH); }

bool FileStamp::settled() const noexcept {
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  const std::int64_t now_ns = now.tv_sec * 1'000'000'000LL + now.tv_nsec;
  constexpr std::int64_t margin = 2'000'000'000;
  return modified_ns < now_ns - margin && changed_ns < now_ns - margin;
}

std::optional<FileContent> read_file(const std::string& path, std::size_t limit) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) return std::nullopt;
  const auto stamp = FileStamp::of_open(fd.get());
  if (!stamp) return std::nullopt;
  if (stamp->size > limit) {
    errno = EFBIG;
    return std::nullopt;
  }
  FileContent out{*stamp, std::string(stamp->size, '\0')};
  std::size_t done = 0;
  while (done < out.bytes.size()) {
    const ssize_t n = ::read(fd.get(), out.bytes.data() + done, out.bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    // The file shrank while it was read: a later comparison with its stamp finds the difference.
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  out.bytes.resize(done);
  return out;
}

std::string read_proc(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string out;
  char chunk[4096];
  for (ssize_t n; fd && (n = ::read(fd.get(), chunk, sizeof chunk)) > 0;)
    out.append(chunk, static_cast<std::size_t>(n));
  return out;
}

void write_file(const std::string& path, std::string_view bytes, unsigned mode) {
  std::string temporary = path + ".XXXXXX";
  const Fd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  const auto fail = [&](const char* what) {
    const int error = errno;
    if (fd) ::unlink(temporary.c_str());
    throw Error(Errc::io, std::string("cannot ") + what + " '" + path + "': " + std::strerror(error));
  };
  if (!fd) fail("create");
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(fd.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("write");
    done += static_cast<std::size_t>(n);
  }
  if (::fchmod(fd.get(), mode) != 0 || ::rename(temporary.c_str(), path.c_str()) != 0) fail("write");
}

TempDir::TempDir(std::string_view prefix) {
  const char* configured = std::getenv("TMPDIR");
  std::string reasons;
  for (const char* base : {configured, "/tmp", "/var/tmp", "/dev/shm"}) {
    if (!base || *base != '/') continue;
    path_ = std::string(base) + '/' + std::string(prefix) + "XXXXXX";
    if (::mkdtemp(path_.data())) return;
    reasons += "'" + path_ + "': " + std::strerror(errno) + "; ";
  }
  throw Error(Errc::io,
              "cannot create a private directory: " + reasons + "set TMPDIR to a writable directory");
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string normalized(std::string_view path) { return fs::path(path).lexically_normal().string(); }

std::optional<std::string> absolute(const std::string& path) {
  if (path.empty()) {  // libstdc++ refuses it, and libc++ takes it for the current directory
    errno = EINVAL;
    return std::nullopt;
  }
  std::error_code error;
  const fs::path out = fs::absolute(path, error);
  if (!error) return out.string();
  errno = error.value();
  return std::nullopt;
}

std::string directory_of(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? "." : slash == 0 ? "/" : std::string(path.substr(0, slash));
}

std::string own_object_directory() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&own_object_directory), &info) && info.dli_fname) {
    std::error_code error;
    const auto real = fs::canonical(info.dli_fname, error);
    if (!error && real.is_absolute() && fs::is_regular_file(real, error)) return real.parent_path().string();
  }
  std::error_code error;
  // The `dli_fname` of a main program may be a name without a directory.
  const auto exe = fs::read_symlink("/proc/self/exe", error);
  return error ? std::string(".") : exe.parent_path().string();
}

}  // namespace kiln::base
