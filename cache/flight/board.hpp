// The board lies beside a flight file and says which process compiles what since when, and how the last
// flight of a key ended.
//
// It is never needed for correctness: whatever cannot be read or written is "no information". Slots are
// written without a lock, and a torn or foreign one does not pass its checksum. Read and written with pread
// and pwrite only: a mapped page on a full tmpfs is SIGBUS.
//
// Format 1: 512 slots of 40 KiB (sparse: untouched pages cost nothing; cache/lock/cell_file.hpp), with "KBRD"
// as the magic and as the body (base/wire.hpp)
//   32 bytes key, u64 flight, u32 state, u32 without_record, i32 pid, u64 pid namespace, i64 started (unix
//   ms), i64 started, i64 ended (boot clock, ms), bytes host, bytes subject, bytes error
// A key lies in one of the four slots from its hash on. Behind them: who waits (cache/flight/waiters.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/flight/asker.hpp"
#include "cache/lock/cell_file.hpp"
#include "kiln/digest.hpp"

namespace kiln::cache {

enum class FlightState : std::uint32_t { compiling, published, failed, unpublished };

struct BoardEntry : Asker {
  Key key;
  std::uint64_t flight = 0;  ///< grows with each flight of a key (boot clock, us)
  FlightState state = FlightState::compiling;
  std::uint32_t without_record = 0;           ///< flights of this key that ended without a record, in a row
  std::int64_t started_unix_ms = 0;           ///< for people
  std::int64_t started_ms = 0, ended_ms = 0;  ///< boot clock; 0: not ended
  std::string subject;                        ///< for people: "rms_norm T=bf16 H=4096 for sm_90a"
  std::string error;  ///< of a failed flight, as the holder wrote it; at most kErrorLimit bytes

  static constexpr std::size_t kErrorLimit = 36 << 10;

  /// `without_record`, or 0 when that was more than a quarter of an hour ago: what kept records away then may
  /// be mended by now.
  std::uint32_t endings_without_record() const noexcept;
  double seconds_since_start() const noexcept;
};

/// One board file. Thread-safe; safe between processes.
class Board {
 public:
  /// `salt` goes into every checksum: entries of another store that once had this one's name (an inode is
  /// used again) are no information.
  Board(std::string path, std::uint64_t salt) : file_(std::move(path), salt) {}
  /// Only looks, at a board of this user.
  Board(std::string path, std::uint64_t salt, uid_t owner) : file_(std::move(path), salt, owner) {}

  std::optional<BoardEntry> read(const Key& key) noexcept;
  /// Every intact entry, in no order.
  std::vector<BoardEntry> read_all() noexcept;

  /// A new flight of this key by this process. A flight that still is `compiling` was left by a holder that
  /// was killed: it counts as one that ended without a record. REQUIRES: the caller holds the key's lock.
  /// Returns the entry for `end`.
  BoardEntry begin(const Key& key, std::string_view subject) noexcept;
  /// `error`: what every process that waited for this flight shall be told; empty: nothing. Does nothing when
  /// a newer flight of the key began meanwhile (the lock file was replaced under this one).
  void end(BoardEntry entry, FlightState state, std::string_view error = {}) noexcept;

  const std::string& path() const noexcept { return file_.path(); }
  /// The file, which has room behind the slots.
  CellFile& file() noexcept { return file_; }
  static constexpr std::int64_t kEnd = std::int64_t{512} * (40 << 10);

 private:
  std::optional<BoardEntry> find(int fd, const Key& key, std::int64_t& slot);
  std::int64_t slot_for(int fd, const Key& key);
  void write(const BoardEntry& entry) noexcept;

  std::optional<BoardEntry> read_slot(int fd, std::int64_t slot) const;

  CellFile file_;
};

}  // namespace kiln::cache
