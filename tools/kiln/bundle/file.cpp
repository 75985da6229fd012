#include "tools/kiln/bundle/file.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/file.hpp"
#include "cache/place/directory.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/cli/interrupt.hpp"

namespace kiln::cli {
namespace {

constexpr int kPollMs = 100;  // interval between two checks for Ctrl-C

/// Waits until bytes can be read. Throws Interrupted after Ctrl-C.
void await(int fd) {
  for (;;) {
    if (PoliteInterrupt::requested()) throw Interrupted{};
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, kPollMs) > 0) return;
  }
}

}  // namespace

BundleInput::BundleInput(const std::string& path) : name_(path == "-" ? "stdin" : '\'' + path + '\'') {
  if (path == "-") {
    fd_ = STDIN_FILENO;
    if (::isatty(fd_)) throw Error(Errc::invalid_argument, "stdin is a terminal; give a file or a pipe");
  } else {
    opened_ = base::Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!opened_) throw Error(Errc::io, "cannot read " + name_ + ": " + std::strerror(errno));
    fd_ = opened_.get();
  }
  struct stat st {};
  if (::fstat(fd_, &st) != 0) throw Error(Errc::io, "cannot read " + name_ + ": " + std::strerror(errno));
  if (S_ISDIR(st.st_mode)) throw Error(Errc::io, "cannot read " + name_ + ": it is a directory");
  regular_ = S_ISREG(st.st_mode);
  if (regular_) size_ = static_cast<std::uint64_t>(st.st_size);
}

base::Read BundleInput::reader() const {
  const auto at = std::make_shared<off_t>(0);
  return [this, at](char* out, std::size_t size) -> std::size_t {
    for (;;) {
      if (!regular_) await(fd_);
      const ssize_t got = regular_ ? ::pread(fd_, out, size, *at) : ::read(fd_, out, size);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw Error(Errc::io, "cannot read " + name_ + ": " + std::strerror(errno));
      *at += got;
      return static_cast<std::size_t>(got);
    }
  };
}

BundleOutput::BundleOutput(const std::string& path) : path_(path) {
  struct stat st {};
  if (path == "-") {
    fd_ = STDOUT_FILENO;
    direct_ = true;
    if (::isatty(fd_))
      throw Error(Errc::invalid_argument, "a bundle is not written to a terminal; give a file or a pipe");
    return;
  }
  if (::lstat(path.c_str(), &st) == 0 && S_ISLNK(st.st_mode)) {
    // The link's target is replaced, not the link itself. A link of another user is refused, because its
    // owner decides where it leads.
    cache::refuse_foreign_links(std::filesystem::absolute(path).string());
    if (std::error_code none; ::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode))
      path_ = std::filesystem::canonical(path, none).string();
  }
  if (::stat(path_.c_str(), &st) == 0 && !S_ISREG(st.st_mode)) {
    if (S_ISDIR(st.st_mode)) throw Error(Errc::io, "cannot write '" + path_ + "': it is a directory");
    direct_ = true;
    opened_ = base::Fd(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
  } else {
    const std::string directory = base::directory_of(path_);
    cache::refuse_foreign_links(std::filesystem::absolute(directory).string());
    opened_ = base::Fd(::open(directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666));
    if (!opened_ && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) {
      temporary_ = path_ + ".kiln-" + std::to_string(::getpid());
      opened_ = base::Fd(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    }
  }
  if (!opened_) {
    temporary_.clear();
    fail("create");
  }
  fd_ = opened_.get();
}

BundleOutput::~BundleOutput() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void BundleOutput::fail(const char* what) const {
  const std::string name = path_ == "-" ? "to stdout" : '\'' + path_ + '\'';
  throw Error(Errc::io, std::string("cannot ") + what + ' ' + name + ": " + std::strerror(errno));
}

void BundleOutput::write(std::string_view bytes) {
  bytes_ += bytes.size();
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("write");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

void BundleOutput::commit() {
  if (direct_) return;
  if (::fsync(fd_) != 0) fail("write");
  if (temporary_.empty()) {
    const std::string name = path_ + ".kiln-" + std::to_string(::getpid());
    const std::string self = "/proc/self/fd/" + std::to_string(fd_);
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) fail("write");
    temporary_ = name;
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("write");
  temporary_.clear();
}

}  // namespace kiln::cli
