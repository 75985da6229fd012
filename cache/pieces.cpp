#include "cache/pieces.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "cache/record.hpp"

namespace kiln::cache {
namespace {

constexpr std::size_t kKeyBytes = 32, kPieceKeyBytes = 34;
constexpr std::uint64_t kReserveLimit = 8 << 20;  // a size is believed once the bytes are there

using PieceKey = std::array<std::uint8_t, kPieceKeyBytes>;

PieceKey piece_key(const Key& key, std::size_t index) noexcept {
  PieceKey out;
  std::copy(key.specialisation.bytes.begin(), key.specialisation.bytes.end(), out.begin());
  std::copy(key.toolchain.bytes.begin(), key.toolchain.bytes.end(), out.begin() + 16);
  out[32] = static_cast<std::uint8_t>(index >> 8);
  out[33] = static_cast<std::uint8_t>(index);
  return out;
}

MDB_val value_of(PieceKey& key) noexcept { return {key.size(), key.data()}; }
MDB_val value_of(std::string_view bytes) noexcept { return {bytes.size(), const_cast<char*>(bytes.data())}; }
std::string_view view(const MDB_val& value) noexcept {
  return {static_cast<const char*>(value.mv_data), value.mv_size};
}

bool is(const MDB_val& found, const PieceKey& key) noexcept {
  return found.mv_size == key.size() && std::memcmp(found.mv_data, key.data(), key.size()) == 0;
}

struct CloseCursor {
  void operator()(MDB_cursor* cursor) const noexcept { mdb_cursor_close(cursor); }
};
using Cursor = std::unique_ptr<MDB_cursor, CloseCursor>;

/// Appends the pieces after the one that the cursor stands on until `out` has `size` bytes.
bool append_pieces(MDB_cursor* cursor, const Key& key, std::uint64_t size, std::string& out) {
  for (std::size_t index = 1; out.size() < size; ++index) {
    MDB_val found{}, value{};
    if (mdb_cursor_get(cursor, &found, &value, MDB_NEXT) != 0 || !is(found, piece_key(key, index)))
      return false;
    if (value.mv_size == 0) return false;
    out.append(view(value));
  }
  return true;
}

}  // namespace

Copied copy_record(MDB_txn* txn, MDB_dbi dbi, const Key& key, std::string& out) {
  MDB_cursor* opened = nullptr;
  if (mdb_cursor_open(txn, dbi, &opened) != 0) return Copied::damaged;
  const Cursor cursor(opened);
  PieceKey first = piece_key(key, 0);
  MDB_val at = value_of(first), value{};
  const int rc = mdb_cursor_get(cursor.get(), &at, &value, MDB_SET);
  if (rc == MDB_NOTFOUND) return Copied::absent;
  const auto extent = rc == 0 ? extent_of(view(value)) : std::nullopt;
  if (!extent || extent->total > kMaxRecordBytes) return Copied::damaged;
  out.reserve(std::min(extent->total, kReserveLimit));
  out.append(view(value));
  return append_pieces(cursor.get(), key, extent->total, out) ? Copied::complete : Copied::damaged;
}

int write_record(MDB_txn* txn, MDB_dbi dbi, const Key& key, std::string_view encoded) {
  std::size_t count = 0;
  for (; !encoded.empty(); ++count) {
    PieceKey at = piece_key(key, count);
    const std::string_view piece = encoded.substr(0, kPieceBytes);
    MDB_val where = value_of(at), value = value_of(piece);
    if (const int rc = mdb_put(txn, dbi, &where, &value, 0); rc != 0) return rc;
    encoded.remove_prefix(piece.size());
  }
  MDB_cursor* opened = nullptr;
  if (const int rc = mdb_cursor_open(txn, dbi, &opened); rc != 0) return rc;
  const Cursor cursor(opened);
  while (count < std::size_t{1} << 16) {
    PieceKey surplus = piece_key(key, count);
    MDB_val found = value_of(surplus), value{};
    const int rc = mdb_cursor_get(cursor.get(), &found, &value, MDB_SET_RANGE);
    if (rc == MDB_NOTFOUND) break;
    if (rc != 0) return rc;
    if (found.mv_size != kPieceKeyBytes || std::memcmp(found.mv_data, surplus.data(), kKeyBytes) != 0) break;
    if (const int deleted = mdb_cursor_del(cursor.get(), 0); deleted != 0) return deleted;
  }
  return 0;
}

bool RecordWalk::seek(const Key& from) {
  PieceKey start = piece_key(from, 0);
  MDB_val found = value_of(start), value{};
  MDB_cursor_op op = MDB_SET_RANGE;
  while (code_ == 0) {
    code_ = mdb_cursor_get(cursor_, &found, &value, op);
    if (code_ == MDB_NOTFOUND) {
      code_ = 0;
      return false;
    }
    op = MDB_NEXT;
    if (code_ != 0 || found.mv_size != kPieceKeyBytes) continue;
    const auto* bytes = static_cast<const std::uint8_t*>(found.mv_data);
    if (bytes[32] != 0 || bytes[33] != 0) continue;  // pieces without a first one: damage, and no record
    std::copy_n(bytes, 16, key_.specialisation.bytes.begin());
    std::copy_n(bytes + 16, 16, key_.toolchain.bytes.begin());
    piece_ = view(value);
    return true;
  }
  return false;
}

std::string RecordWalk::head(std::uint64_t& record_size) {
  const auto extent = extent_of(piece_);
  record_size = extent && extent->total <= kMaxRecordBytes ? extent->total : 0;
  if (record_size == 0) return {};
  std::string out(piece_.substr(0, extent->head));
  append_pieces(cursor_, key_, extent->head, out);
  return out;
}

std::optional<Key> successor(const Key& key) {
  Key out = key;
  for (Digest* digest : {&out.toolchain, &out.specialisation})
    for (std::size_t i = digest->bytes.size(); i-- > 0;)
      if (++digest->bytes[i] != 0) return out;
  return std::nullopt;
}

}  // namespace kiln::cache
