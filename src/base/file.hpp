// Reading of whole files, and the identity of a file's content as the kernel tells it.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kiln::base {

/// The identity of a file's content. Within one boot of one machine, equal stamps mean equal content once the
/// stamp is settled(). The mount is part of a stamp: two images with clamped times had equal devices, inodes
/// and times, but different content.
struct FileStamp {
  std::uint64_t device = 0, inode = 0, size = 0, mount = 0;
  std::int64_t modified_ns = 0, changed_ns = 0;  ///< mtime, ctime
  friend bool operator==(const FileStamp&, const FileStamp&) = default;

  /// The stamp of a regular file; symlinks are followed. Nothing, with `errno` set, when
  /// there is no such file.
  static std::optional<FileStamp> of(const std::string& path) noexcept;
  /// The stamp of `path`, which is relative to the open directory `directory`. Nothing when there is no such
  /// regular file, and `errno` says why: EISDIR for a directory, EINVAL for any other kind of file.
  static std::optional<FileStamp> of(int directory, const char* path) noexcept;
  /// The stamp of an open regular file.
  static std::optional<FileStamp> of_open(int fd) noexcept;
  /// True when both times are more than 2 s old: a write after the stamp was taken would change it.
  bool settled() const noexcept;
};

struct FileContent {
  FileStamp stamp;  ///< taken from the descriptor that was read
  std::string bytes;
};

/// Reads a regular file of at most `limit` bytes. Never blocks on a FIFO or device. Returns nothing on
/// failure, and `errno` says why.
std::optional<FileContent> read_file(const std::string& path, std::size_t limit = std::size_t{1} << 30);

/// Reads a file whose size is not known before it is read, such as one of /proc or of a cgroup. Returns ""
/// when it cannot be read.
std::string read_proc(const std::string& path);

/// Writes to a temporary name beside `path`, then renames it to `path`. Throws Error(io).
void write_file(const std::string& path, std::string_view bytes, unsigned mode = 0644);

/// A private directory (mode 0700) under $TMPDIR, /tmp, /var/tmp or /dev/shm. The destructor removes it with
/// its content, and does not follow symlinks.
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

/// Normalises the text alone: "a/./b/../c" becomes "a/c". A leading ".." stays.
std::string normalized(std::string_view path);
/// `path` as an absolute path: a relative one is put below the current directory. "." and ".." stay. Nothing
/// when `path` is empty or the current directory is not known: `errno` says why.
std::optional<std::string> absolute(const std::string& path);
/// Everything before the last '/'. "." when `path` has no '/', and "/" when its only '/'
/// is the first character.
std::string directory_of(std::string_view path);
/// The directory of the library or executable that contains this code.
std::string own_object_directory();

}  // namespace kiln::base
