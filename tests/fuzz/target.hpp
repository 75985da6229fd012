// Shared by the fuzz targets: a place for the fuzzed file, and a check.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/fd.hpp"

namespace kiln::fuzz {

/// Aborts when `holds` is false, so that libFuzzer keeps the input.
inline void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

/// The file DIR/v1/NAME in memory. One for the life of the process, and removed with it.
class File {
 public:
  explicit File(const std::string& name)
      : directory_("/dev/shm/kiln-fuzz-" + std::to_string(::getpid())), path_(directory_ + "/v1/" + name) {
    ::mkdir(directory_.c_str(), 0700);
    ::mkdir((directory_ + "/v1").c_str(), 0700);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    ::unlink(path_.c_str());
    ::rmdir((directory_ + "/v1").c_str());
    ::rmdir(directory_.c_str());
  }
  const std::string& directory() const noexcept { return directory_; }
  const std::string& path() const noexcept { return path_; }
  void write(std::string_view bytes) const {
    const base::Fd fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    expect(::write(fd.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "a write");
  }

 private:
  std::string directory_, path_;
};

inline std::string_view view(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace kiln::fuzz
