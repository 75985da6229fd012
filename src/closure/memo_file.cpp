#include "closure/memo_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace kiln::source {

std::string boot_id() {
  const base::Fd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char id[36];  // without the newline at its end
  return fd && ::read(fd.get(), id, sizeof id) == sizeof id ? std::string(id, sizeof id) : std::string();
}

base::Fd open_memo(const std::string& file) noexcept {
  base::Fd fd(::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat st;
  const bool ours = fd && ::fstat(fd.get(), &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == ::geteuid() &&
                    (st.st_mode & 077) == 0;
  return ours ? std::move(fd) : base::Fd();
}

}  // namespace kiln::source
