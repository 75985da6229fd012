// Records as runs of pieces: what lies in LMDB, and how it is walked.
//
// Key: specialisation digest, toolchain digest, u16 big-endian piece index (34 bytes). Value: 4,080 bytes of
// the encoded record, the last piece shorter. A page of 4,096 bytes has a header of 16: each full piece is
// one overflow page, so that every freed page fits the next piece; whole values fragment the file to almost
// twice its live bytes.
#pragma once

#include <lmdb.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kiln/digest.hpp"

namespace kiln::cache {

inline constexpr std::size_t kPieceBytes = 4080;
inline constexpr std::size_t kMaxRecordBytes = kPieceBytes << 16;

enum class Copied { absent, complete, damaged };

/// Appends the encoded record of `key` to `out`. Nothing in it is verified.
Copied copy_record(MDB_txn* txn, MDB_dbi dbi, const Key& key, std::string& out);

/// Writes all pieces and deletes those of a longer record that lay there. Returns LMDB's code.
/// REQUIRES: encoded.size() <= kMaxRecordBytes.
int write_record(MDB_txn* txn, MDB_dbi dbi, const Key& key, std::string_view encoded);

/// Steps through the first pieces, ordered by key. Lives inside one transaction.
class RecordWalk {
 public:
  RecordWalk(MDB_txn* txn, MDB_dbi dbi) : code_(mdb_cursor_open(txn, dbi, &cursor_)) {}
  RecordWalk(const RecordWalk&) = delete;
  RecordWalk& operator=(const RecordWalk&) = delete;
  ~RecordWalk() {
    if (cursor_) mdb_cursor_close(cursor_);
  }
  /// The first record at or after `from`; false at the end or when LMDB finds damage (`code`).
  bool seek(const Key& from);
  const Key& key() const noexcept { return key_; }
  /// The first bytes of the record, as many as its head needs if they are there, and its whole size as it
  /// says itself (0: it is none).
  std::string head(std::uint64_t& record_size);
  /// 0 as long as all went well.
  int code() const noexcept { return code_; }

 private:
  MDB_cursor* cursor_ = nullptr;
  Key key_;
  std::string_view piece_;
  int code_;
};

/// The next larger key; nothing after the last one.
std::optional<Key> successor(const Key& key);

}  // namespace kiln::cache
