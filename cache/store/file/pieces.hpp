// The entries of the tree: each record is a run of pieces, and has one entry more that says when it was used.
//
// Piece: key 'r', specialisation digest, toolchain digest, u16 big-endian index; value 4,080 bytes of the
// encoded record, the last piece shorter, but filled up with zeros to 2,048. A page of 4,096 bytes has a
// header of 16: each piece is one overflow page, so that every freed page fits the next piece (whole values
// fragment the file to almost twice its live bytes), and deleting a record frees exactly its pages (small
// values would lie in leaves, which LMDB gives back only when they are almost empty). Use: key 'u', both
// digests; value Use, in 32 bytes. Written with its record, in one transaction.
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
/// What a key of the tree belongs to; nothing for keys of neither kind.
struct PieceName {
  Key key;
  std::size_t index;
};
std::optional<PieceName> parse_piece_key(std::string_view bytes);
std::optional<Key> parse_use_key(std::string_view bytes);
inline constexpr std::string_view kFirstPieceKey = "r", kFirstUseKey = "u";

struct Use {
  std::int64_t tick = 0;       ///< the store's own clock: transactions. No wall clock can set it back
  std::uint64_t last_s = 0;    ///< seconds since 1970, for people
  std::uint64_t count = 0;     ///< at least so many uses
  std::uint64_t stored_s = 0;  ///< when it was published, seconds since 1970
};
std::string encode(const Use& use);
/// A default one for what is none.
Use decode_use(std::string_view bytes) noexcept;
/// `cursor` of the main tree; with ascending keys it reads few pages twice. Throws Damaged.
std::optional<Use> read_use(TreeCursor& cursor, const Key& key);

/// Appends the encoded record of `key` to `out`, or its beginning `upto` the end of a part. Nothing in it is
/// verified. Throws Damaged when the tree cannot be read as far as the record.
enum class Upto { key_text, end };
Copied copy_record(const PageFile& file, const Key& key, Buffer& out, Upto upto = Upto::end);
/// The keys of the pieces that are there, whole record or not. Throws Damaged when there is something else
/// among them. `pages` receives the first page of each value
/// that does not lie in its leaf, with the value's size.
std::vector<std::string> pieces_of(const PageFile& file, const Key& key,
                                   std::vector<std::pair<std::uint64_t, std::uint64_t>>* pages = nullptr);

/// Write all pieces of a record, delete entries, set a use. They return LMDB's code; `flags` as of mdb_put.
/// REQUIRES: encoded.size() <= kMaxRecordBytes.
int write_record(MDB_txn* txn, MDB_dbi dbi, const Key& key, std::string_view encoded, unsigned flags = 0);
int write_use(MDB_txn* txn, MDB_dbi dbi, const Key& key, const Use& use, unsigned flags = 0);
int erase(MDB_txn* txn, MDB_dbi dbi, const std::vector<std::string>& keys);

/// Steps through the first pieces, ordered by key. `file` must outlive it. Everything may throw Damaged.
class RecordWalk {
 public:
  explicit RecordWalk(const PageFile& file) : file_(file), cursor_(file) {}
  /// The first record at or after `from`; false at the end.
  bool seek(const Key& from);
  /// The next one, past every piece in between: no page of the tree is left out, unlike with `seek`.
  /// REQUIRES: the last step returned true.
  bool next();
  /// Records that were passed and have no first piece.
  std::uint64_t beheaded() const noexcept { return beheaded_; }
  const Key& key() const noexcept { return key_; }
  /// The first bytes of the record, as many as its head needs if they are there, and its whole size as it
  /// says itself (0: it is none).
  std::string head(std::uint64_t& record_size);

 private:
  bool find_first_piece(bool more, const Key& from);
  const PageFile& file_;
  TreeCursor cursor_;
  Key key_;
  std::uint64_t beheaded_ = 0;
  bool passed_ = false;  ///< the cursor stands behind the record already
};

/// The next larger key; nothing after the last one.
std::optional<Key> successor(const Key& key);

}  // namespace kiln::cache
