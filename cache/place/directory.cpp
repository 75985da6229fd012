#include "cache/place/directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <vector>

#include "base/fd.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "cache/place/filesystem.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

constexpr int kLinkLimit = 40;  // the kernel's own limit
constexpr mode_t kOthersMayWrite = 022;
constexpr const char* kHowToWrite = "; 'kiln prewarm --layer' and 'kiln bundle import --layer' write a layer";

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(Errc::io, "'" + path + "': " + why);
}

std::string mode_text(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "0%03o", static_cast<unsigned>(mode & 07777));
  return text;
}

std::string link_target(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t size = ::readlink(path.c_str(), target, sizeof target);
  if (size < 0) refuse(path, std::strerror(errno));
  return std::string(target, static_cast<std::size_t>(size));
}

/// Appends the pieces of `path`, the last one first.
void push_reversed(std::vector<std::string>& onto, const std::string& path) {
  std::vector<std::string> pieces = base::split(path, '/');
  onto.insert(onto.end(), std::make_move_iterator(pieces.rbegin()), std::make_move_iterator(pieces.rend()));
}

/// Throws unless `path` is owned by root or this user and nobody else may write it.
void check_trusted(const std::string& path, mode_t kind) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) {
    const int error = errno;
    refuse(path, std::string(std::strerror(error)) + (error == ENOENT ? kHowToWrite : ""));
  }
  if ((st.st_mode & S_IFMT) != kind) refuse(path, kind == S_IFDIR ? "not a directory" : "not a regular file");
  if (st.st_uid != 0 && st.st_uid != ::geteuid())
    refuse(path, "belongs to uid " + std::to_string(st.st_uid) + ", neither root nor uid " +
                     std::to_string(::geteuid()) + "; chown it");
  if ((st.st_mode & kOthersMayWrite) != 0)
    refuse(path, "others may write it (mode " + mode_text(st.st_mode) + "); chmod go-w it");
}

/// Creates `path` and its missing parents with exactly `mode`, whatever the umask.
void make_directories(const std::string& path, mode_t mode) {
  struct stat st {};
  if (path.empty() || (::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode))) return;
  const std::string parent = base::directory_of(path);
  if (parent != path && parent != ".") make_directories(parent, mode);
  if (::mkdir(path.c_str(), mode) == 0) {
    ::chmod(path.c_str(), mode);
    return;
  }
  const int error = errno;
  if (error == EEXIST && ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode))
    return;  // another process made it
  refuse(path, std::string("cannot create the directory: ") + std::strerror(error));
}

}  // namespace

void refuse_foreign_links(const std::string& path) {
  std::vector<std::string> todo;
  push_reversed(todo, path);
  std::string walked;  // without symlinks, no trailing slash
  for (int links = 0; !todo.empty();) {
    const std::string piece = std::move(todo.back());
    todo.pop_back();
    if (piece == ".") continue;
    if (piece == "..") {
      walked.resize(walked.empty() ? 0 : walked.rfind('/'));
      continue;
    }
    const std::string here = walked + '/' + piece;
    struct stat st {};
    if (::lstat(here.c_str(), &st) != 0) {
      if (errno == ENOENT) return;
      refuse(here, std::strerror(errno));
    }
    if (!S_ISLNK(st.st_mode)) {
      walked = here;
      continue;
    }
    if (st.st_uid != 0 && st.st_uid != ::geteuid())
      refuse(here, "a symlink of uid " + std::to_string(st.st_uid) + ", which is neither root nor this user");
    if (++links > kLinkLimit) refuse(path, "too many symlinks");
    const std::string target = link_target(here);
    if (target.starts_with('/')) walked.clear();
    push_reversed(todo, target);
  }
}

void refuse_network(const std::string& directory) {
  if (const Filesystem found = filesystem_of(directory); found.network)
    refuse(directory,
           "lies on " + found.name +
               ", a network filesystem, whose locks and mappings are not reliable; use a directory on a "
               "local filesystem");
}

std::string private_name() { return "kiln-" + std::to_string(::geteuid()); }

std::string own_directory(const std::string& wanted) {
  refuse_foreign_links(wanted);
  struct stat st {};
  if (::stat(wanted.c_str(), &st) != 0) {
    if (errno == ENOENT) return wanted;
    refuse(wanted, std::strerror(errno));
  }
  if (!S_ISDIR(st.st_mode)) refuse(wanted, "not a directory");
  if (st.st_uid == ::geteuid() && (st.st_mode & kOthersMayWrite) == 0) return wanted;
  return wanted + '/' + private_name();
}

void make_own(const std::string& directory, FinalLink final_link) {
  refuse_foreign_links(directory);
  make_directories(directory, 0700);
  struct stat st {};
  const auto look = final_link == FinalLink::refused ? ::lstat : ::stat;
  if (look(directory.c_str(), &st) != 0) refuse(directory, std::strerror(errno));
  if (!S_ISDIR(st.st_mode) || st.st_uid != ::geteuid() || (st.st_mode & kOthersMayWrite) != 0)
    refuse(directory, "not a directory that belongs to this user alone");
}

void check_own_store(const std::string& directory) {
  for (const std::string& path : {directory + "/v1", directory + "/v1/data.mdb"}) {
    struct stat st {};
    if (::stat(path.c_str(), &st) != 0 && errno == ENOENT) return;
    if (st.st_uid != ::geteuid() || (st.st_mode & kOthersMayWrite) != 0)
      refuse(path, "does not belong to this user alone (uid " + std::to_string(st.st_uid) + ", mode " +
                       mode_text(st.st_mode) + ")");
  }
}

void check_layer(const std::string& directory) {
  if (!directory.starts_with('/')) refuse(directory, "the path of a layer must be absolute; begin it with /");
  refuse_foreign_links(directory + "/v1/data.mdb");
  check_trusted(directory, S_IFDIR);
  check_trusted(directory + "/v1", S_IFDIR);
  check_trusted(directory + "/v1/data.mdb", S_IFREG);
}

void make_layer(const std::string& directory) {
  refuse_foreign_links(directory + "/v1/data.mdb");
  make_directories(directory + "/v1", 0755);
  check_trusted(directory, S_IFDIR);
  check_trusted(directory + "/v1", S_IFDIR);
}

void share_layer(const std::string& directory) {
  const std::string place = directory + "/v1";
  const auto let = [](const std::string& path, mode_t mode) {
    if (::chmod(path.c_str(), mode) != 0) refuse(path, std::string("chmod: ") + std::strerror(errno));
  };
  DIR* listing = ::opendir(place.c_str());
  if (!listing) refuse(place, std::strerror(errno));
  std::vector<std::string> files;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string file = place + '/' + entry->d_name;
    struct stat st {};
    if (::lstat(file.c_str(), &st) == 0 && S_ISREG(st.st_mode)) files.push_back(file);
  }
  ::closedir(listing);
  for (const std::string& file : files) let(file, 0644);
  let(place, 0755);
  let(directory, 0755);
}

}  // namespace kiln::cache
