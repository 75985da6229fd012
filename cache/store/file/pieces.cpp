#include "cache/store/file/pieces.hpp"

#include <algorithm>
#include <cstring>

#include "base/wire.hpp"
#include "cache/record/record.hpp"

namespace kiln::cache {
namespace {

constexpr std::size_t kDigestBytes = 16;
constexpr std::size_t kPieceKeyBytes = 1 + 2 * kDigestBytes + 2, kUseKeyBytes = 1 + 2 * kDigestBytes;
constexpr std::uint64_t kReserveLimit = 8 << 20;  // a larger size is believed only once the bytes are there
constexpr std::size_t kMaxPieces = std::size_t{1} << 16;
constexpr std::size_t kUsualHead = 1536;

std::string digests_of(const Key& key, char kind) {
  std::string out(1, kind);
  for (const Digest* digest : {&key.specialisation, &key.toolchain})
    out.append(reinterpret_cast<const char*>(digest->bytes.data()), digest->bytes.size());
  return out;
}

Key parse_digests(std::string_view bytes) {
  Key key;
  std::memcpy(key.specialisation.bytes.data(), bytes.data() + 1, kDigestBytes);
  std::memcpy(key.toolchain.bytes.data(), bytes.data() + 1 + kDigestBytes, kDigestBytes);
  return key;
}

MDB_val value_of(std::string_view bytes) noexcept { return {bytes.size(), const_cast<char*>(bytes.data())}; }

/// Copies values that a cursor passes; neighbouring pages are read in one call.
class ValueCopy {
 public:
  ValueCopy(const PageFile& file, Buffer& out) : file_(file), out_(out) {}
  ValueCopy(const ValueCopy&) = delete;
  ValueCopy& operator=(const ValueCopy&) = delete;
  void add(const TreePage::Value& value) {
    const std::size_t body = file_.page_size() - TreePage::kHeader;
    const bool whole_page = value.overflow != kNoPage && value.size <= body;
    if (!whole_page || value.overflow != first_ + count_ || bytes_ != count_ * body) flush();
    if (value.overflow == kNoPage) {
      out_.append(value.bytes);
    } else if (!whole_page) {
      throw Damaged("page " + std::to_string(value.overflow) + ": a value is longer than a piece may be");
    } else {
      if (count_ == 0) first_ = value.overflow;
      ++count_, bytes_ += value.size;
    }
  }
  /// Completes `out` with the values that are still to be read.
  void flush() {
    if (count_ > 0) file_.append_bodies(first_, count_, bytes_, out_);
    count_ = bytes_ = 0;
  }
  std::size_t size() const noexcept { return out_.size() + bytes_; }

 private:
  const PageFile& file_;
  Buffer& out_;
  std::uint64_t first_ = 0;
  std::size_t count_ = 0, bytes_ = 0;
};

/// Appends the pieces after the one that the cursor stands on until `copy` has `size` bytes. Returns false
/// when a piece is missing.
bool append_pieces(TreeCursor& cursor, const Key& key, std::uint64_t size, ValueCopy& copy) {
  std::string wanted = piece_key(key, 0);
  for (std::size_t index = 1; copy.size() < size && index < kMaxPieces; ++index) {
    wanted[kPieceKeyBytes - 2] = static_cast<char>(index >> 8);
    wanted[kPieceKeyBytes - 1] = static_cast<char>(index);
    if (!cursor.next() || cursor.key() != wanted) return false;
    TreePage::Value value = cursor.value();
    if (value.size == 0) return false;
    if (value.size > size - copy.size()) {  // padding
      value.size = size - copy.size();
      value.bytes = value.bytes.substr(0, value.size);
    }
    copy.add(value);
  }
  copy.flush();
  return copy.size() == size;
}

}  // namespace

std::string piece_key(const Key& key, std::size_t index) {
  std::string out = digests_of(key, kFirstPieceKey[0]);
  out += static_cast<char>(index >> 8);
  out += static_cast<char>(index);
  return out;
}

std::string use_key(const Key& key) { return digests_of(key, kFirstUseKey[0]); }

std::optional<PieceName> parse_piece_key(std::string_view bytes) {
  if (bytes.size() != kPieceKeyBytes || bytes[0] != kFirstPieceKey[0]) return std::nullopt;
  const auto byte = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(bytes[at]));
  };
  return PieceName{parse_digests(bytes), byte(kPieceKeyBytes - 2) << 8 | byte(kPieceKeyBytes - 1)};
}

std::optional<Key> parse_use_key(std::string_view bytes) {
  if (bytes.size() != kUseKeyBytes || bytes[0] != kFirstUseKey[0]) return std::nullopt;
  return parse_digests(bytes);
}

std::string encode(const Use& use) {
  base::Writer out;
  out.number(use.tick).number(use.last_s).number(use.count).number(use.stored_s);
  return std::move(out.str());
}

Use decode_use(std::string_view bytes) noexcept try {
  base::Reader in(bytes);
  Use out;
  out.tick = in.number<std::int64_t>();
  out.last_s = in.number<std::uint64_t>();
  out.count = in.number<std::uint64_t>();
  out.stored_s = in.number<std::uint64_t>();
  return out;
} catch (const base::Malformed&) {
  return {};
}

std::optional<Use> read_use(TreeCursor& cursor, const Key& key) {
  const std::string wanted = use_key(key);
  const bool is_next = cursor.stands() && cursor.next() && cursor.key() == wanted;
  if (!is_next && (!cursor.seek(wanted) || cursor.key() != wanted)) return std::nullopt;
  return decode_use(cursor.value().bytes);
}

Copied copy_record(const PageFile& file, const Key& key, Buffer& out, Upto upto) {
  TreeCursor cursor(file);
  const std::string first = piece_key(key, 0);
  if (!cursor.seek(first) || cursor.key() != first) return Copied::absent;
  ValueCopy copy(file, out);
  copy.add(cursor.value());
  copy.flush();
  const auto extent = extent_of(out.view());
  if (!extent || extent->total > kMaxRecordBytes) return Copied::damaged;
  const std::uint64_t size = upto == Upto::end ? extent->total : extent->key_text;
  if (out.size() > size) out.truncate(size);  // padding, or more than was asked for
  out.reserve(std::min(size, kReserveLimit));
  return append_pieces(cursor, key, size, copy) ? Copied::complete : Copied::damaged;
}

std::vector<std::string> pieces_of(const PageFile& file, const Key& key,
                                   std::vector<std::pair<std::uint64_t, std::uint64_t>>* pages) {
  std::vector<std::string> out;
  TreeCursor cursor(file);
  const std::string record = digests_of(key, kFirstPieceKey[0]);
  for (bool more = cursor.seek(piece_key(key, 0)); more && cursor.key().starts_with(record);
       more = cursor.next()) {
    if (!parse_piece_key(cursor.key())) throw Damaged("a record's pieces include a key of an unknown kind");
    out.emplace_back(cursor.key());
    if (const auto value = cursor.value(); pages && value.overflow != kNoPage)
      pages->emplace_back(value.overflow, value.size);
  }
  return out;
}

int write_record(MDB_txn* txn, MDB_dbi dbi, const Key& key, std::string_view encoded, unsigned flags) {
  std::string filled_up;
  for (std::size_t index = 0; !encoded.empty(); ++index) {
    const std::string at = piece_key(key, index);
    std::string_view piece = encoded.substr(0, kPieceBytes);
    encoded.remove_prefix(piece.size());
    if (piece.size() < kSmallestPiece) {
      filled_up = piece;
      filled_up.resize(kSmallestPiece);
      piece = filled_up;
    }
    MDB_val where = value_of(at), value = value_of(piece);
    if (const int rc = mdb_put(txn, dbi, &where, &value, flags); rc != 0) return rc;
  }
  return 0;
}

int write_use(MDB_txn* txn, MDB_dbi dbi, const Key& key, const Use& use, unsigned flags) {
  const std::string at = use_key(key), bytes = encode(use);
  MDB_val where = value_of(at), value = value_of(bytes);
  return mdb_put(txn, dbi, &where, &value, flags);
}

int erase(MDB_txn* txn, MDB_dbi dbi, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    MDB_val where = value_of(key);
    if (const int rc = mdb_del(txn, dbi, &where, nullptr); rc != 0) return rc;
  }
  return 0;
}

bool RecordWalk::seek(const Key& from) { return find_first_piece(cursor_.seek(piece_key(from, 0)), from); }

bool RecordWalk::next() {
  // `head` may have passed the record's last piece, which may be the last one of the tree.
  return cursor_.stands() && find_first_piece(passed_ || cursor_.next(), key_);
}

bool RecordWalk::find_first_piece(bool more, const Key& from) {
  passed_ = false;
  std::optional<Key> beheaded;
  for (; more; more = cursor_.next()) {
    const std::string_view key = cursor_.key();
    if (key.substr(0, 1) > kFirstPieceKey) return false;
    const auto name = parse_piece_key(key);
    if (!name) continue;
    if (name->index != 0) {  // of the record before, or of one without a first piece: damage
      if (name->key != key_ && name->key != beheaded) ++beheaded_, beheaded = name->key;
      continue;
    }
    if (name->key < from) throw Damaged("keys out of order");  // the walk would never end
    key_ = name->key;
    return true;
  }
  return false;
}

std::string RecordWalk::head(std::uint64_t& record_size) {
  Buffer out;
  // Most heads are much shorter than a piece. Copying no more than they need halves the cost
  // of listing many records.
  if (const auto value = cursor_.value(); value.overflow != kNoPage && value.size > kUsualHead) {
    file_.append_bodies(value.overflow, 1, kUsualHead, out);
    const auto extent = extent_of(out.view());
    if (extent && extent->head <= kUsualHead && extent->total <= kMaxRecordBytes) {
      record_size = extent->total;
      return std::string(out.view().substr(0, extent->head));
    }
    out.clear();
  }
  ValueCopy copy(file_, out);
  copy.add(cursor_.value());
  copy.flush();
  const auto extent = extent_of(out.view());
  record_size = extent && extent->total <= kMaxRecordBytes ? extent->total : 0;
  if (record_size == 0) return {};
  while (copy.size() < extent->head && cursor_.next()) {
    const auto name = parse_piece_key(cursor_.key());
    passed_ = !name || name->key != key_;
    if (passed_) break;
    copy.add(cursor_.value());
  }
  copy.flush();
  return std::string(out.view().substr(0, extent->head));
}

std::optional<Key> successor(const Key& key) {
  Key out = key;
  for (Digest* digest : {&out.toolchain, &out.specialisation})
    for (std::size_t i = digest->bytes.size(); i-- > 0;)
      if (++digest->bytes[i] != 0) return out;
  return std::nullopt;
}

}  // namespace kiln::cache
