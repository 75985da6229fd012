// The board lies beside a flight file. It says which process compiles what since when, and how the last
// flight of a key ended.
//
// It is never needed for correctness: an entry that cannot be read or written is "no information". Slots are
// written without a lock; a torn slot, or one of another store, fails its checksum. The file is read and
// written with pread and pwrite only, because a mapped page on a full tmpfs raises SIGBUS.
//
// Format 1 (cache/lock/cell_file.hpp): 512 slots of 40 KiB with the magic "KBRD". The file is sparse, so
// untouched pages cost nothing. The body of a slot (base/wire.hpp):
//
//     32 bytes key, u64 flight, u32 state, u32 without_record, i32 pid, u64 pid namespace,
//     i64 started (unix ms), i64 started, i64 ended (boot clock, ms), bytes host, bytes subject, bytes error.
//
// The entry of a key lies in one of the four slots that begin at its hash. The waiters lie after
// the last slot (cache/flight/waiters.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/flight/process_identity.hpp"
#include "cache/lock/cell_file.hpp"
#include "kiln/digest.hpp"

namespace kiln::cache {

enum class FlightState : std::uint32_t { compiling, published, failed, unpublished };

struct BoardEntry : ProcessIdentity {
  Key key;
  std::uint64_t flight = 0;  ///< grows with each flight of the key (boot clock, us)
  FlightState state = FlightState::compiling;
  std::uint32_t without_record = 0;           ///< flights of the key in a row that ended without a record
  std::int64_t started_unix_ms = 0;           ///< for people
  std::int64_t started_ms = 0, ended_ms = 0;  ///< boot clock; `ended_ms` is 0 until the end
  std::string subject;                        ///< for people: "rms_norm T=bf16 H=4096 for sm_90a"
  std::string error;  ///< the holder's words on a failed flight; not kept beyond kErrorLimit bytes

  static constexpr std::size_t kErrorLimit = 36 << 10;

  /// Returns `without_record`, or 0 when the last flight is more than 15 minutes old. The cause that kept
  /// records away may be mended by then.
  std::uint32_t endings_without_record() const noexcept;
  double seconds_since_start() const noexcept;
};

/// One board file. Thread-safe; safe between processes.
class Board {
 public:
  /// `salt` goes into every checksum. Inode numbers are reused, so another store may once have had this
  /// store's name; the salt makes its entries no information.
  Board(std::string path, std::uint64_t salt) : file_(std::move(path), salt) {}
  /// Opens the board for reading only, provided that `owner` owns it.
  Board(std::string path, std::uint64_t salt, uid_t owner) : file_(std::move(path), salt, owner) {}

  std::optional<BoardEntry> read(const Key& key) noexcept;
  /// Every intact entry, in no particular order.
  std::vector<BoardEntry> read_all() noexcept;

  /// Puts a new flight of this key by this process on the board, and returns the entry for `end`. An entry
  /// that still says `compiling` was left by a killed holder; it counts as a flight that ended without a
  /// record. REQUIRES: the caller holds the key's lock.
  BoardEntry begin(const Key& key, std::string_view subject) noexcept;
  /// Writes how the flight ended. `error`, unless empty, is the message for every process that waited
  /// for this flight. Does nothing when a newer flight of the key has begun, which happens when the lock
  /// file was replaced meanwhile.
  void end(BoardEntry entry, FlightState state, std::string_view error = {}) noexcept;

  const std::string& path() const noexcept { return file_.path(); }
  /// The file, which has room after the slots.
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
