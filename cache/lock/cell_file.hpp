// A cell file has fixed cells, each with a body and its checksum, which processes write without a lock. A
// cell that is torn, foreign or from another store is no information. The file is read and written with
// pread and pwrite only, because a mapped page on a full tmpfs raises SIGBUS.
//
// A cell is u32 magic, u32 format (1), u32 size of the body, u64 XXH3-64 of the body xor the salt, the body.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cache/lock/fd_pool.hpp"

namespace kiln::cache {

/// Thread-safe; safe between processes.
class CellFile {
 public:
  static constexpr std::size_t kHeadBytes = 20;

  /// Opens the file for reading and writing. `salt` goes into every checksum.
  CellFile(std::string path, std::uint64_t salt);
  /// Opens the file for reading only, provided that `owner` owns it.
  CellFile(std::string path, std::uint64_t salt, uid_t owner);

  enum class Create { no, yes };
  /// Returns a descriptor of the file that the path names now. It is invalid unless that is a regular
  /// file of the owner.
  FdPool::Lease open(Create create);
  /// Reads the body of the cell at offset `at`. Returns nothing for an empty, torn or foreign cell, or a body
  /// of more than `limit` bytes.
  std::optional<std::string> read(int fd, std::int64_t at, std::uint32_t magic, std::size_t limit) const;
  /// Writes the cell at offset `at`. Returns false when that failed, on a full disk or at a limit.
  bool write(int fd, std::int64_t at, std::uint32_t magic, std::string_view body) const noexcept;

  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
  std::uint64_t salt_;
  uid_t owner_;
  FdPool pool_;
};

}  // namespace kiln::cache
