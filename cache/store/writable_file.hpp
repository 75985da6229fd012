// A store's file as its writers see it: entering it, keeping it under its cap, and replacing it when it is
// damaged or is to be smaller.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "cache/store/file/write_transaction.hpp"
#include "cache/store/report.hpp"

namespace kiln::cache {

inline constexpr std::uint64_t kTreeSlack = 8 << 20;  ///< map bytes for the tree's pages that a put copies

/// Thread-safe.
class WritableFile {
 public:
  /// `file` must outlive this object.
  WritableFile(StoreFile& file, std::uint64_t cap_bytes) : file_(file), cap_bytes_(cap_bytes) {}

  StoreFile& file() noexcept { return file_; }
  std::uint64_t cap_bytes() const noexcept { return cap_bytes_; }
  std::uint64_t live_limit() const noexcept { return cap_bytes_ / 10 * 9; }
  /// Returns whether `live_bytes` are within the limit. From three quarters of the limit on, eviction is
  /// near, and this call makes the table in which readers note their uses (cache/store/recent_uses.hpp).
  bool fits(std::uint64_t live_bytes) noexcept;

  /// Enters the gate as a writer, and creates the file when it is absent. `why` receives what people should
  /// know when it did not enter. Throws Error(io).
  Entered enter(base::Deadline deadline, std::optional<WriteTransaction>& out, std::string& why);
  /// Leaves at most `live_bytes` live in a file of at most the cap, and returns how many entries were deleted
  /// for that. Evicts in the file where that suffices. A file that is larger than the cap, or too full for
  /// its own tree to be changed, is rewritten, as gc does. Where no second file can be made, the file keeps
  /// its size. Returns nothing when the file could not be entered for the rewrite; `entered` and `why` then
  /// say how that ended. Throws Damaged where the tree is damaged, and LmdbError.
  std::optional<std::uint64_t> make_room(std::uint64_t live_bytes, base::Deadline deadline, Entered& entered,
                                         std::string& why);
  /// Moves the intact records to a fresh file, unless the file is no longer the one with inode `seen`.
  /// Returns what people should know, or an empty string when another process did it. Throws Error(io)
  /// when that cannot be done: the file stays where it is, its intact records are served, and after a
  /// while a put tries again.
  std::string heal(const std::string& why, ino_t seen, base::Deadline deadline);
  /// Rewrites the file with at most `live_bytes`. Throws Error(io), also for a store that was opened
  /// read-only.
  Rewritten replace(std::uint64_t live_bytes, base::Deadline deadline);

 private:
  StoreFile& file_;
  const std::uint64_t cap_bytes_;
  std::atomic<bool> swept_{false};        // a writer of this process removed what killed processes left
  std::atomic<bool> recent_made_{false};  // a put of this process made the table of recent uses
  std::atomic<base::Clock::rep> no_heal_before_{0};
};

/// The size of a file in bytes, or 0 when it cannot be told.
std::uint64_t size_of(const std::string& path) noexcept;

}  // namespace kiln::cache
