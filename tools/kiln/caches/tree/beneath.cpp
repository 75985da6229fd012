#include "tools/kiln/caches/tree/beneath.hpp"

#include <fcntl.h>

namespace kiln::cli {

int Beneath::parent_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return root_;
  const std::string directory = path.substr(0, slash);
  if (open_ && directory == directory_) return open_.get();
  forget();
  base::Fd at;
  for (std::size_t begin = 0; begin <= directory.size();) {
    const std::size_t end = std::min(directory.find('/', begin), directory.size());
    base::Fd next(::openat(at ? at.get() : root_, directory.substr(begin, end - begin).c_str(),
                           O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next) return -1;
    at = std::move(next);
    begin = end + 1;
  }
  open_ = std::move(at);
  directory_ = directory;
  return open_.get();
}

}  // namespace kiln::cli
