#include "tools/kiln/caches/tree/restore.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/quote.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/caches/tree/beneath.hpp"
#include "tools/kiln/caches/tree/staging.hpp"
#include "tools/kiln/caches/tree/time.hpp"

namespace kiln::cli {
namespace {

constexpr unsigned kMostThreads = 4;
constexpr std::size_t kMostWarnings = 20;

using Kind = TreeEntry::Kind;

[[noreturn]] void fail_to_write(const std::string& path) {
  throw Error(Errc::io, "cannot write '" + path + "': " + std::strerror(errno));
}

void write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_to_write(path);
    bytes.remove_prefix(static_cast<std::size_t>(done));
  }
}

/// The mode of a restored file or directory. Its owner can always read it, so that the next restore can.
mode_t mode_of(const TreeEntry& entry) noexcept {
  return entry.mode | (entry.kind == Kind::directory ? 0500 : 0400);
}

/// True for a directory that its owner cannot write into.
bool is_read_only(const TreeEntry& entry) noexcept {
  return entry.kind == Kind::directory && (entry.mode & S_IWUSR) == 0;
}

/// Makes a directory with its mode, whatever the umask is, and lets its owner write into it. False, with `errno` set,
/// when it is there or cannot be made.
bool make_directory(int parent, const TreeEntry& entry) noexcept {
  const char* const name = Beneath::name_of(entry.path);
  if (::mkdirat(parent, name, 0700) != 0) return false;
  static_cast<void>(::fchmodat(parent, name, entry.mode | 0700, 0));  // a filesystem may refuse it
  return true;
}

/// The entries that are to be written.
struct Work {
  std::vector<const TreeEntry*> directories, files, symlinks;
  bool empty() const noexcept { return directories.empty() && files.empty() && symlinks.empty(); }
};

/// Finds out what is to be written into an existing directory.
class Comparison {
 public:
  Comparison(const RestoreRequest& request, int root, Restored& out)
      : request_(request), beneath_(root), out_(out) {}

  Work compare(const Tree& tree) {
    Work work;
    for (const TreeEntry& entry : tree.entries) {
      switch (entry.kind) {
        case Kind::directory:
          if (is_missing_directory(entry)) work.directories.push_back(&entry);
          break;
        case Kind::symlink:
          if (is_wanted(entry, &Comparison::is_equal_symlink)) work.symlinks.push_back(&entry);
          break;
        case Kind::file:
        case Kind::fresh_file:
          if (is_wanted(entry, &Comparison::is_equal_file)) work.files.push_back(&entry);
      }
    }
    return work;
  }

 private:
  /// Its status, without following a symlink. Nothing when it is not there.
  std::optional<struct stat> status_of(const TreeEntry& entry) {
    struct stat status {};
    const int parent = beneath_.parent_of(entry.path);
    if (parent >= 0 && ::fstatat(parent, Beneath::name_of(entry.path), &status, AT_SYMLINK_NOFOLLOW) == 0)
      return status;
    if (errno != ENOENT) refuse(entry);
    return std::nullopt;
  }
  [[noreturn]] void refuse(const TreeEntry& entry) const {
    throw Error(Errc::invalid_argument, "nothing was restored: at or above '" + request_.root + '/' +
                                            entry.path + "' is something other than what the record has (" +
                                            std::strerror(errno) +
                                            "); remove it, or restore to another "
                                            "directory with --to");
  }

  bool is_missing_directory(const TreeEntry& entry) {
    const auto status = status_of(entry);
    if (status && !S_ISDIR(status->st_mode)) {
      errno = ENOTDIR;
      refuse(entry);
    }
    return !status;
  }

  bool is_wanted(const TreeEntry& entry, bool (Comparison::*is_equal)(const TreeEntry&, const struct stat&)) {
    const auto status = status_of(entry);
    if (!status) return true;
    if (S_ISDIR(status->st_mode)) {
      errno = EISDIR;
      refuse(entry);
    }
    if ((this->*is_equal)(entry, *status)) {
      out_.equal += entry.is_file();
      return false;
    }
    if (request_.force) return true;
    ++out_.kept;
    if (out_.warnings.size() < kMostWarnings)
      out_.warnings.push_back(base::quote(entry.path) +
                              " differs from the record and stays; --force replaces it");
    return false;
  }

  bool is_equal_file(const TreeEntry& entry, const struct stat& status) {
    if (!S_ISREG(status.st_mode) || static_cast<std::uint64_t>(status.st_size) != entry.size) return false;
    if (((status.st_mode ^ entry.mode) & S_IXUSR) != 0)
      return false;  // a program that cannot run is no equal
    if (!request_.full && entry.kind == Kind::file && ns_of(status.st_mtim) == entry.modified_ns) return true;
    const base::Fd fd(::openat(beneath_.parent_of(entry.path), Beneath::name_of(entry.path),
                               O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!fd) return false;
    base::DigestStream digest;
    std::string block(std::size_t{1} << 18, 0);
    for (ssize_t got = 0; (got = ::read(fd.get(), block.data(), block.size())) > 0;)
      digest.add({block.data(), static_cast<std::size_t>(got)});
    return digest.digest() == entry.digest;
  }

  bool is_equal_symlink(const TreeEntry& entry, const struct stat& status) {
    std::string target(entry.target.size() + 1, 0);
    return S_ISLNK(status.st_mode) &&
           ::readlinkat(beneath_.parent_of(entry.path), Beneath::name_of(entry.path), target.data(),
                        target.size()) == static_cast<ssize_t>(entry.target.size()) &&
           target.starts_with(entry.target);
  }

  const RestoreRequest& request_;
  Beneath beneath_;
  Restored& out_;
};

/// Fetches files into the staging directory. Each distinct content is fetched once.
class Fetch {
 public:
  Fetch(const RestoreRequest& request, const Staging& staging, runtime::BlobSpace& files)
      : request_(request), staging_(staging), files_(files) {}

  /// "" when every file is there now, else which one is missing. Throws Error(io).
  std::string run(const std::vector<const TreeEntry*>& wanted) {
    std::map<Digest, std::size_t> known;
    for (const TreeEntry* entry : wanted) {
      const auto [at, is_new] = known.emplace(entry->digest, groups_.size());
      if (is_new) groups_.emplace_back();
      groups_[at->second].push_back(entry);
    }
    const auto cores = std::max(1u, std::thread::hardware_concurrency());
    const auto others = std::min<std::size_t>({kMostThreads, cores, groups_.size() / 16 + 1}) - 1;
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < others; ++i) threads.emplace_back([this] { work(); });
      work();
    }
    if (error_) std::rethrow_exception(error_);
    return missing_;
  }

 private:
  using Group = std::vector<const TreeEntry*>;  // files with the same bytes

  void work() noexcept {
    Beneath beneath(staging_.fd());
    while (!stop_) {
      const std::size_t at = next_++;
      if (at >= groups_.size()) return;
      try {
        fetch(groups_[at], beneath);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        error_ = std::current_exception();
        stop_ = true;
      }
    }
  }

  void fetch(const Group& group, Beneath& beneath) {
    const TreeEntry& first = *group.front();
    const auto found = files_.get(first.digest.hex());
    const std::string_view content = found ? found->view : std::string_view();
    if (!found || content.size() != first.size || base::digest_of(content) != first.digest) {
      const std::lock_guard lock(mutex_);
      missing_ = "the bytes of " + base::quote(first.path) + " are in no store" +
                 (found ? ", which has others in their place" : "");
      stop_ = true;
      return;
    }
    const base::Fd source = write(first, content, beneath);
    for (std::size_t i = 1; i < group.size(); ++i) {
      if (request_.immutable && !request_.copy && link(first, *group[i])) continue;
      write(*group[i], content, beneath, request_.copy ? -1 : source.get());
    }
  }

  /// True when the second file is a hard link of the first one now.
  bool link(const TreeEntry& first, const TreeEntry& second) const {
    Beneath from(staging_.fd()), to(staging_.fd());
    return first.mode == second.mode &&
           ::linkat(from.parent_of(first.path), Beneath::name_of(first.path), to.parent_of(second.path),
                    Beneath::name_of(second.path), 0) == 0;
  }

  /// Writes a file, or clones `source` where the filesystem can.
  base::Fd write(const TreeEntry& entry, std::string_view content, Beneath& beneath, int source = -1) {
    const int parent = beneath.parent_of(entry.path);
    base::Fd fd(parent < 0 ? -1
                           : ::openat(parent, Beneath::name_of(entry.path),
                                      O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd) fail_to_write(staging_.path() + '/' + entry.path);
    if (source < 0 || ::ioctl(fd.get(), FICLONE, source) != 0)
      write_all(fd.get(), content, staging_.path() + '/' + entry.path);
    const timespec time = timespec_of(entry.modified_ns), times[] = {time, time};
    // A filesystem may refuse the mode or the time. The next restore then compares the bytes.
    static_cast<void>(::fchmod(fd.get(), mode_of(entry)));
    static_cast<void>(::futimens(fd.get(), times));
    return fd;
  }

  const RestoreRequest& request_;
  const Staging& staging_;
  runtime::BlobSpace& files_;
  std::vector<Group> groups_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // guards what follows
  std::string missing_;
  std::exception_ptr error_;
};

/// Makes the directories in the staging directory that its files need.
void stage_directories(const Tree& tree, const Staging& staging) {
  Beneath beneath(staging.fd());
  for (const TreeEntry& entry : tree.entries) {
    if (entry.kind != Kind::directory) continue;
    const int parent = beneath.parent_of(entry.path);
    if (parent < 0 || !make_directory(parent, entry)) fail_to_write(staging.path() + '/' + entry.path);
  }
}

void stage_symlinks(const std::vector<const TreeEntry*>& symlinks, const Staging& staging) {
  Beneath beneath(staging.fd());
  for (const TreeEntry* entry : symlinks) {
    const int parent = beneath.parent_of(entry->path);
    if (parent < 0 || ::symlinkat(entry->target.c_str(), parent, Beneath::name_of(entry->path)) != 0)
      fail_to_write(staging.path() + '/' + entry->path);
  }
}

/// Lets the owner write into directories that the record has as read-only, while a restore does. Only directories of
/// the tree are changed, and none through a symlink.
class Opened {
 public:
  /// The descriptor of the tree's root must stay open as long as this object lives.
  Opened(const Tree& tree, int root) : tree_(tree), root_(root) {
    if ((tree.root_mode & S_IWUSR) == 0) add(root, nullptr);
  }
  /// Takes the right away again, also from directories that were made meanwhile.
  ~Opened() {
    Beneath beneath(root_);
    for (const auto& [entry, mode] : opened_) {
      const int fd = entry ? directory(beneath, *entry) : root_;
      if (fd >= 0) static_cast<void>(::fchmod(fd, mode));  // a filesystem may refuse it
    }
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  /// Opens the directories that exist.
  void add_all() {
    Beneath beneath(root_);
    for (const TreeEntry& entry : tree_.entries) {
      const int fd = is_read_only(entry) ? directory(beneath, entry) : -1;
      if (fd >= 0) add(fd, &entry);
    }
  }
  /// Notes directories that this restore makes: they get their modes at the end.
  void add_made(const std::vector<const TreeEntry*>& directories) {
    for (const TreeEntry* entry : directories)
      if (is_read_only(*entry)) opened_.emplace_back(entry, mode_of(*entry));
  }

 private:
  static int directory(Beneath& beneath, const TreeEntry& entry) {
    return beneath.parent_of(entry.path + "/.");
  }
  void add(int fd, const TreeEntry* entry) {
    struct stat status {};
    if (::fstat(fd, &status) != 0 || (status.st_mode & S_IWUSR) != 0) return;
    if (::fchmod(fd, (status.st_mode & 0777) | 0700) == 0) opened_.emplace_back(entry, status.st_mode & 0777);
  }

  const Tree& tree_;
  const int root_;
  std::vector<std::pair<const TreeEntry*, mode_t>> opened_;  // null: the root
};

/// Gives staged entries their names in a directory that exists.
void publish(const RestoreRequest& request, const Work& work, const Staging& staging, int root,
             Restored& out) {
  Beneath from(staging.fd()), to(root);
  const auto path_of = [&](const TreeEntry& entry) { return request.root + '/' + entry.path; };
  for (const TreeEntry* entry : work.directories) {
    const int parent = to.parent_of(entry->path);
    if (parent < 0 || (!make_directory(parent, *entry) && errno != EEXIST)) fail_to_write(path_of(*entry));
  }
  const auto move = [&](const TreeEntry& entry) {
    const int source = from.parent_of(entry.path), target = to.parent_of(entry.path);
    const char* const name = Beneath::name_of(entry.path);
    if (source < 0 || target < 0) fail_to_write(path_of(entry));
    if (request.force ? ::renameat(source, name, target, name) == 0
                      : rename_if_absent(source, name, target, name)) {
      out.written += entry.is_file();
    } else if (errno == EEXIST && !request.force) {
      ++out.kept;  // another process wrote it meanwhile
    } else {
      fail_to_write(path_of(entry));
    }
  };
  for (const TreeEntry* entry : work.files) move(*entry);
  for (const TreeEntry* entry : work.symlinks) move(*entry);
}

Work everything_of(const Tree& tree) {
  Work out;
  for (const TreeEntry& entry : tree.entries) {
    if (entry.kind == Kind::directory) out.directories.push_back(&entry);
    if (entry.is_file()) out.files.push_back(&entry);
    if (entry.kind == Kind::symlink) out.symlinks.push_back(&entry);
  }
  return out;
}

/// Restores into an open directory that exists.
Restored merge(const RestoreRequest& request, const Tree& tree, int root, runtime::BlobSpace& files) {
  Restored out;
  const Work work = Comparison(request, root, out).compare(tree);
  if (work.empty()) return out;
  Opened opened(tree, root);
  const Staging staging(request.root);
  stage_directories(tree, staging);
  out.missing = Fetch(request, staging, files).run(work.files);
  if (!out.missing.empty()) return out;
  stage_symlinks(work.symlinks, staging);
  opened.add_all();
  opened.add_made(work.directories);
  publish(request, work, staging, root, out);
  return out;
}

/// Restores a directory that does not exist. Nothing when another process made it meanwhile.
std::optional<Restored> make(const RestoreRequest& request, const Tree& tree, runtime::BlobSpace& files) {
  Restored out;
  const Work work = everything_of(tree);
  const std::string parent = base::directory_of(request.root);
  make_directories(parent);
  Staging staging(parent);
  stage_directories(tree, staging);
  out.missing = Fetch(request, staging, files).run(work.files);
  if (!out.missing.empty()) return out;
  stage_symlinks(work.symlinks, staging);
  if (!staging.become(request.root, tree.root_mode)) return std::nullopt;
  // A directory that its owner cannot write into could not be renamed or removed, so modes come last.
  Opened opened(tree, staging.fd());
  opened.add_made(work.directories);
  static_cast<void>(::fchmod(staging.fd(), (tree.root_mode & 0777) | 0500));  // a filesystem may refuse it
  out.written = work.files.size();
  return out;
}

}  // namespace

Restored restore(const RestoreRequest& request, const Tree& tree, runtime::BlobSpace& files) {
  while (true) {
    const base::Fd root(::open(request.root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (root) return merge(request, tree, root.get(), files);
    if (errno != ENOENT)
      throw Error(Errc::io, "cannot open the directory '" + request.root + "': " + std::strerror(errno));
    struct stat status {};
    if (::lstat(request.root.c_str(), &status) == 0)
      throw Error(Errc::io, "'" + request.root + "' is a symlink to nothing; remove it");
    if (auto done = make(request, tree, files)) return *std::move(done);
  }
}

}  // namespace kiln::cli
