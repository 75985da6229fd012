#include "tools/kiln/plan/text.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/fd.hpp"
#include "base/file.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kMost = std::size_t{64} << 20;

[[noreturn]] void fail(const std::string& file, const std::string& why) {
  throw Error(Errc::io, "cannot read the plan '" + file + "': " + why);
}

std::string read_to_end(const std::string& file) {
  const base::Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd) fail(file, std::strerror(errno));
  std::string out;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(file, std::strerror(errno));
    if (n == 0) return out;
    out.append(buffer, static_cast<std::size_t>(n));
    if (out.size() > kMost) fail(file, "more than " + std::to_string(kMost) + " bytes");
  }
}

}  // namespace

std::string read_plan_text(const std::string& file) {
  struct stat st {};
  if (::stat(file.c_str(), &st) == 0 && !S_ISREG(st.st_mode)) return read_to_end(file);
  if (auto content = base::read_file(file, kMost)) return std::move(content->bytes);
  fail(file, errno == EFBIG ? "more than " + std::to_string(kMost) + " bytes" : std::strerror(errno));
}

}  // namespace kiln::cli
