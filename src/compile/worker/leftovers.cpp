#include "compile/worker/leftovers.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <filesystem>

#include "base/fd.hpp"
#include "base/file.hpp"

namespace kiln::compile {
namespace {

constexpr std::time_t kYoung = 60;  // seconds: a worker may be about to lock a directory of this age

base::Fd open_directory(const std::string& path) {
  return base::Fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

}  // namespace

void hold_directory(const std::string& directory) noexcept {
  base::Fd fd = open_directory(directory);
  if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) static_cast<void>(fd.release());
}

void sweep_leftovers(const std::string& directory) noexcept try {
  static constinit std::atomic<bool> begun{false};  // nobody waits for the sweep, least of all a forked child
  if (begun.exchange(true)) return;
  namespace fs = std::filesystem;
  std::error_code error;
  for (const auto& child : fs::directory_iterator(base::directory_of(directory), error)) {
    if (!child.path().filename().string().starts_with(kWorkerDirectory)) continue;
    const base::Fd fd = open_directory(child.path().string());
    struct stat st {};
    if (!fd || ::fstat(fd.get(), &st) != 0 || st.st_uid != ::geteuid()) continue;
    if (std::time(nullptr) - st.st_ctime < kYoung || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;
    fs::remove_all(child.path(), error);
  }
} catch (...) {
}

}  // namespace kiln::compile
