// One open LMDB environment of one inode, shared by every Store of this process that leads to it.
#pragma once

#include <lmdb.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/deadline.hpp"
#include "cache/gate.hpp"

namespace kiln::cache {

/// What tells files apart, whatever the path's spelling.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  static FileId of(const struct stat& st) noexcept { return {st.st_dev, st.st_ino}; }
  friend auto operator<=>(const FileId&, const FileId&) = default;
};

/// Immutable once open, but for `retire`. Closed when the last transaction and Store let go of it.
/// Thread-safe.
class Environment {
 public:
  /// The environment of the file at `path`: this process's open one, or a new one; the file is created when
  /// `writable`. Every lock wait ends at the deadline. Throws Error(io) that names path, reason and remedy.
  static std::shared_ptr<Environment> open(const std::string& path, bool writable, std::uint64_t map_bytes,
                                           base::Deadline deadline);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  MDB_env* get() const noexcept { return env_; }
  MDB_dbi dbi() const noexcept { return dbi_; }
  bool writable() const noexcept { return writable_; }
  FdPool& gate_fds() noexcept { return gate_fds_; }
  /// Two writer threads on one environment crash it; the gate's W comes after this.
  std::mutex& writer_mutex() noexcept { return writer_mutex_; }
  std::uint64_t file_bytes() const;

  /// Whether `path` and the locked descriptor still are this environment's file, and it did not shrink
  /// (reading a mapping behind the end of its file is SIGBUS). Ask inside the gate.
  bool is_file_at(const std::string& path, int locked_fd) noexcept;
  /// No new transaction starts here (the file was replaced, a commit failed, the map is too small): the next
  /// use of the store opens the file again.
  void retire() noexcept { retired_.store(true, std::memory_order_release); }
  bool retired() const noexcept { return retired_.load(std::memory_order_acquire); }

 private:
  Environment(const std::string& path, bool writable);
  static std::shared_ptr<Environment> try_open(const std::string& path, bool writable,
                                               std::uint64_t map_bytes, base::Deadline deadline);
  void map(const std::string& path, std::uint64_t map_bytes);

  const bool writable_;
  const std::uint64_t generation_;  // of the process that opened it
  FileId file_;
  MDB_env* env_ = nullptr;
  MDB_dbi dbi_ = 0;
  FdPool gate_fds_;
  std::mutex writer_mutex_;
  std::atomic<bool> retired_{false};
  std::atomic<std::int64_t> longest_{0};  // the file's size as last seen; LMDB files never shrink
};

}  // namespace kiln::cache
