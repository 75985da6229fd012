// Whole-file reading and the identity of a file's content as the kernel tells it.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kiln::base {

/// Equal stamps of a file older than `settled`'s margin mean equal content, within one boot of one machine.
/// The mount is part of it: two images with clamped times gave equal devices, inodes and times for different
/// content.
struct FileStamp {
  std::uint64_t device = 0, inode = 0, size = 0, mount = 0;
  std::int64_t modified_ns = 0, changed_ns = 0;  ///< mtime, ctime
  friend bool operator==(const FileStamp&, const FileStamp&) = default;

  /// Of a regular file, following symlinks; nothing when there is none.
  static std::optional<FileStamp> of(const std::string& path) noexcept;
  /// The same of a path that is relative to an open directory; `errno` says why there is none (EISDIR for a
  /// directory, EINVAL for what else is no regular file).
  static std::optional<FileStamp> of(int directory, const char* path) noexcept;
  /// Older than 2 s: a write after the stamp was taken would have changed it.
  bool settled() const noexcept;
};

struct FileContent {
  FileStamp stamp;  ///< taken from the descriptor that was read
  std::string bytes;
};

/// A regular file of at most `limit` bytes. Never blocks on a FIFO or device. On failure: nothing, and
/// `errno` says why.
std::optional<FileContent> read_file(const std::string& path, std::size_t limit = std::size_t{1} << 30);

/// A file of /proc, of a cgroup or the like, whose size is not known before it is read. Empty when it cannot
/// be.
std::string read_proc(const std::string& path);

/// Writes to a temporary name beside `path` and renames. Throws Error(io).
void write_file(const std::string& path, std::string_view bytes, unsigned mode = 0644);

/// A directory of our own (0700) under $TMPDIR, /tmp, /var/tmp or /dev/shm, removed with its symlinks and
/// files on destruction.
class TempDir {
 public:
  /// Throws Error(io).
  explicit TempDir(std::string_view prefix);
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir();
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// Lexically: "a/./b/../c" -> "a/c"; a leading ".." stays.
std::string normalized(std::string_view path);
/// Below the current directory, unless `path` is absolute already; "." and ".." stay. Nothing when `path` is
/// empty or the current directory is not known: `errno` says why.
std::optional<std::string> absolute(const std::string& path);
/// Everything before the last '/', or ".".
std::string directory_of(std::string_view path);
/// Directory of the object (library or executable) that contains this code.
std::string own_object_directory();

}  // namespace kiln::base
