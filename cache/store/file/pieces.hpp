// The entries of the tree: each record is a run of pieces, and has one entry more that says when it was used.
//
// - Piece: key 'r', specialisation digest, toolchain digest, u16 big-endian index. Its value is 4,080 bytes
//   of the encoded record. The last piece may be shorter, and is padded with zeros up to 2,048 bytes.
// - Use: key 'u', both digests. Its value is Use, in 32 bytes. It is written in one
//   transaction with its record.
//
// A page of 4,096 bytes has a header of 16, so each piece is one overflow page. Every freed page then
// fits the next piece; whole values would fragment the file to almost twice its live bytes. Deleting a
// record frees exactly its pages. Small values would lie in leaves, which LMDB gives back only when
// they are almost empty.
#pragma once

#include <lmdb.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/store/file/tree.hpp"
#include "kiln/digest.hpp"

namespace kiln::cache {

inline constexpr std::size_t kPieceBytes = 4080, kSmallestPiece = 2048;
inline constexpr std::size_t kMaxRecordBytes = kPieceBytes << 16;

enum class Copied { absent, complete, damaged };

std::string piece_key(const Key& key, std::size_t index);
std::string use_key(const Key& key);
/// The record and the piece that a key of the tree names. The parsers return nothing for a
/// key of another kind.
struct PieceName {
  Key key;
  std::size_t index;
};
std::optional<PieceName> parse_piece_key(std::string_view bytes);
std::optional<Key> parse_use_key(std::string_view bytes);
inline constexpr std::string_view kFirstPieceKey = "r", kFirstUseKey = "u";

struct Use {
  std::int64_t tick = 0;       ///< the store's own clock, in transactions; no wall clock can set it back
  std::uint64_t last_s = 0;    ///< seconds since 1970, for people
  std::uint64_t count = 0;     ///< a lower bound of the uses
  std::uint64_t stored_s = 0;  ///< when it was published, seconds since 1970
};
std::string encode(const Use& use);
/// Returns a default Use when `bytes` holds none.
Use decode_use(std::string_view bytes) noexcept;
/// Reads the use of `key`; nothing when there is none. `cursor` is one of the main tree; with ascending keys
/// it reads few pages twice. Throws Damaged.
std::optional<Use> read_use(TreeCursor& cursor, const Key& key);

enum class Upto { key_text, end };
/// Appends the encoded record of `key` to `out`, up to the end of the part that `upto` names. Nothing in it
/// is verified. Throws Damaged when the tree cannot be read as far as the record.
Copied copy_record(const PageFile& file, const Key& key, Buffer& out, Upto upto = Upto::end);
/// Returns the keys of the pieces that are there, whether the record is whole or not. `pages` receives the
/// first page and the size of each value that does not lie in its leaf. Throws Damaged when there is
/// something else among the pieces.
std::vector<std::string> pieces_of(const PageFile& file, const Key& key,
                                   std::vector<std::pair<std::uint64_t, std::uint64_t>>* pages = nullptr);

/// These functions write all pieces of a record, set a use, and delete entries. They return LMDB's code;
/// `flags` are mdb_put's. REQUIRES: encoded.size() <= kMaxRecordBytes.
int write_record(MDB_txn* txn, MDB_dbi dbi, const Key& key, std::string_view encoded, unsigned flags = 0);
int write_use(MDB_txn* txn, MDB_dbi dbi, const Key& key, const Use& use, unsigned flags = 0);
int erase(MDB_txn* txn, MDB_dbi dbi, const std::vector<std::string>& keys);

/// Steps through the records by their first pieces, ordered by key. `file` must outlive it.
/// Everything may throw Damaged.
class RecordWalk {
 public:
  explicit RecordWalk(const PageFile& file) : file_(file), cursor_(file) {}
  /// Moves to the first record at or after `from`; false when there is none.
  bool seek(const Key& from);
  /// Moves to the next record, past every piece in between. Unlike `seek`, it leaves out no page of the tree.
  /// REQUIRES: the last step returned true.
  bool next();
  /// How many passed records have no first piece.
  std::uint64_t beheaded() const noexcept { return beheaded_; }
  const Key& key() const noexcept { return key_; }
  /// Returns the record's head, or as much of it as is there. `record_size` receives the whole size that the
  /// record states, or 0 when these bytes begin no record.
  std::string head(std::uint64_t& record_size);

 private:
  bool find_first_piece(bool more, const Key& from);
  const PageFile& file_;
  TreeCursor cursor_;
  Key key_;
  std::uint64_t beheaded_ = 0;
  bool passed_ = false;  ///< the cursor is already past the record
};

/// The next larger key; nothing after the largest.
std::optional<Key> successor(const Key& key);

}  // namespace kiln::cache
