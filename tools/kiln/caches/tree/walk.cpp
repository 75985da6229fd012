#include "tools/kiln/caches/tree/walk.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>

#include "base/fd.hpp"
#include "base/quote.hpp"
#include "tools/kiln/caches/profile/glob.hpp"
#include "tools/kiln/caches/tree/staging.hpp"
#include "tools/kiln/caches/tree/time.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kLongestTarget = 4096;

bool fits_any(const std::vector<std::string>& patterns, const std::string& path) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return fits(pattern, path); });
}

class Walk {
 public:
  Walk(const FileChoice& choice, const std::function<void(std::string)>& left_out)
      : choice_(choice), left_out_(left_out) {}

  void read(base::Fd directory, const std::string& above) {
    const std::unique_ptr<DIR, int (*)(DIR*)> listed(::fdopendir(directory.get()), ::closedir);
    if (!listed) return left_out_(base::quote(above) + " cannot be read: " + std::strerror(errno));
    const int fd = directory.release();  // closedir closes it
    while (const dirent* const entry = ::readdir(listed.get())) {
      const std::string name = entry->d_name;
      if (name == "." || name == ".." || is_staging(fd, name)) continue;
      add(fd, name, above.empty() ? name : above + '/' + name);
    }
  }

  std::vector<TreeEntry> entries;

 private:
  void add(int fd, const std::string& name, const std::string& path) {
    struct stat status {};
    if (fits_any(choice_.exclude, path) || ::fstatat(fd, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
      return;
    if (path.size() > kLongestPath)
      return left_out_("the path " + base::quote(path) + " has " + std::to_string(path.size()) +
                       " bytes, and at most " + std::to_string(kLongestPath) +
                       " are allowed, so it is left out with all that is in it");
    TreeEntry entry;
    entry.path = path;
    entry.mode = status.st_mode & 0777;
    if (S_ISDIR(status.st_mode)) {
      if (choice_.stores.contains({status.st_dev, status.st_ino}))
        return left_out_(base::quote(path) + " is kiln's own store, so it is left out");
      base::Fd below(::openat(fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!below) return left_out_(base::quote(path) + " cannot be read: " + std::strerror(errno));
      entry.kind = TreeEntry::Kind::directory;
      entries.push_back(std::move(entry));
      return read(std::move(below), path);
    }
    if (!choice_.include.empty() && !fits_any(choice_.include, path)) return;
    if (S_ISLNK(status.st_mode)) {
      char target[kLongestTarget + 1];
      const ssize_t size = ::readlinkat(fd, name.c_str(), target, sizeof target);
      if (size < 0) return;  // removed meanwhile
      entry.kind = TreeEntry::Kind::symlink;
      entry.target.assign(target, static_cast<std::size_t>(size));
      if (!stays_inside(path, entry.target))
        return left_out_("symlink " + base::quote(path) + " leaves the directory, so it is left out");
    } else if (S_ISREG(status.st_mode)) {
      entry.size = static_cast<std::uint64_t>(status.st_size);
      entry.modified_ns = ns_of(status.st_mtim);
    } else {
      return left_out_(base::quote(path) +
                       " is neither a file, a directory nor a symlink, so it is left out");
    }
    entries.push_back(std::move(entry));
  }

  const FileChoice& choice_;
  const std::function<void(std::string)>& left_out_;
};

/// Leaves only directories in which something is.
void drop_empty_directories(std::vector<TreeEntry>& entries) {
  std::set<std::string> used;
  for (const TreeEntry& entry : entries) {
    if (entry.kind == TreeEntry::Kind::directory) continue;
    for (auto slash = entry.path.rfind('/'); slash != std::string::npos && slash > 0;
         slash = entry.path.rfind('/', slash - 1))
      used.insert(entry.path.substr(0, slash));
  }
  std::erase_if(entries, [&](const TreeEntry& entry) {
    return entry.kind == TreeEntry::Kind::directory && !used.contains(entry.path);
  });
}

}  // namespace

std::vector<TreeEntry> walk(int root, const FileChoice& choice,
                            const std::function<void(std::string)>& left_out) {
  Walk out(choice, left_out);
  out.read(base::Fd(::openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), {});
  if (!choice.include.empty()) drop_empty_directories(out.entries);
  std::sort(out.entries.begin(), out.entries.end(),
            [](const TreeEntry& a, const TreeEntry& b) { return a.path < b.path; });
  return std::move(out.entries);
}

}  // namespace kiln::cli
