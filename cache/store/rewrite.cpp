#include "cache/store/rewrite.hpp"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>

#include "cache/record/record.hpp"
#include "cache/store/file/fresh_file.hpp"
#include "cache/store/survey.hpp"

namespace kiln::cache {
namespace {

constexpr std::size_t kCopiedPerTransaction = 16384;

/// Counts the bytes of the pieces alone, because the counts in the meta page may be what is damaged.
std::uint64_t bytes_of(const std::vector<Surveyed>& entries, const PageFile& pages) {
  std::uint64_t out = 0;
  for (const Surveyed& entry : entries) out += std::uint64_t{entry.pieces} * pages.page_size();
  return out;
}

/// Returns the least recently used entries, which are over the limit.
std::set<Key> over_limit(const PageFile& pages, const RecentUses& recent, std::uint64_t live_bytes) {
  std::set<Key> out;
  const auto entries = survey_by_use(pages, recent);
  const std::uint64_t live = bytes_of(entries, pages);
  if (live <= live_bytes) return out;
  std::uint64_t surplus = live - live_bytes;
  for (const Surveyed& entry : entries) {
    if (surplus == 0) break;
    surplus -= std::min<std::uint64_t>(surplus, std::uint64_t{entry.pieces} * pages.page_size());
    out.insert(entry.key);
  }
  return out;
}

/// Takes the entries of a tree in its order, and writes the whole records into the fresh file.
class Copy {
 public:
  Copy(const PageFile& from, const RecentUses& recent, FreshFile& to, const std::set<Key>& leave_out,
       Rewritten& count)
      : from_(from), recent_(recent), env_(to.env()), leave_out_(leave_out), count_(count) {
    begin();
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  ~Copy() {
    if (txn_) mdb_txn_abort(txn_);
  }

  void leaf(const TreePage& page) {
    for (std::size_t i = 0; i < page.count(); ++i) {
      try {
        entry(page.key(i), page.value(i));
      } catch (const Damaged&) {
        ++count_.damaged;
        encoded_.clear();
      }
    }
  }
  /// Looks up the records that the walk saw, but not whole or not in order. A reader may find
  /// them all the same.
  void finish() {
    TreeCursor uses(from_);
    for (const Key& key : seen_) {
      if (kept_.contains(key) || leave_out_.contains(key)) continue;
      try {
        encoded_.clear();
        if (copy_record(from_, key, encoded_) != Copied::complete || !is_intact(encoded_.view())) continue;
        put(write_record(txn_, dbi_, key, encoded_.view()));
        if (const auto use = read_use(uses, key)) put(write_use(txn_, dbi_, key, aged(key, *use)));
        ++count_.kept;
      } catch (const Damaged&) {  // counted by the walk
      }
    }
    commit();
  }

 private:
  void commit() { check("copying", mdb_txn_commit(std::exchange(txn_, nullptr))); }
  /// The fresh file counts its transactions from 1, and begins with an empty table of recent uses.
  Use aged(const Key& key, Use use) const {
    use.tick = recent_.later(key, use.tick);
    use.tick = static_cast<std::int64_t>(static_cast<std::uint64_t>(use.tick) - from_.snapshot().transaction);
    return use;
  }
  void begin() {
    check("copying", mdb_txn_begin(env_, nullptr, 0, &txn_));
    check("copying", mdb_dbi_open(txn_, nullptr, 0, &dbi_));
  }

  void entry(std::string_view bytes, const TreePage::Value& value) {
    if (const auto piece = parse_piece_key(bytes)) {
      seen_.insert(piece->key);
      if (piece->index == 0) {
        count_.damaged += encoded_.empty() ? 0 : 1;  // the record before has no end
        encoded_.clear();
        key_ = piece->key, next_ = 0;
      }
      if (piece->key != key_ || piece->index != next_ || leave_out_.contains(key_)) return;
      ++next_;
      if (value.overflow == kNoPage)
        encoded_.append(value.bytes);
      else
        from_.append_bodies(value.overflow, 1, value.size, encoded_);
      const auto extent = extent_of(encoded_.view());
      if (extent && encoded_.size() < extent->total && extent->total <= kMaxRecordBytes) return;
      if (extent && encoded_.size() > extent->total)
        encoded_.truncate(extent->total);  // cuts off the padding
      if (extent && is_intact(encoded_.view()))
        keep();
      else
        ++count_.damaged;
      encoded_.clear();
    } else if (const auto key = parse_use_key(bytes); key && kept_.contains(*key)) {
      put(write_use(txn_, dbi_, *key, aged(*key, decode_use(value.bytes))));
    }
  }

  void keep() {
    if (kept_.contains(key_)) {  // a damaged key looks like this one; the record is what a reader finds
      ++count_.damaged;
      encoded_.clear();
      if (copy_record(from_, key_, encoded_) == Copied::complete && is_intact(encoded_.view()))
        put(write_record(txn_, dbi_, key_, encoded_.view()));
      return;
    }
    const int appended = write_record(txn_, dbi_, key_, encoded_.view(), MDB_APPEND);
    if (appended == MDB_KEYEXIST)  // the old tree was out of order
      put(write_record(txn_, dbi_, key_, encoded_.view()));
    else
      put(appended);
    kept_.insert(key_);
    ++count_.kept;
    pieces_ += encoded_.size() / kPieceBytes + 1;
    if (pieces_ < kCopiedPerTransaction) return;
    commit();
    begin();
    pieces_ = 0;
  }
  static void put(int rc) { check("copying", rc); }

  const PageFile& from_;
  const RecentUses& recent_;
  MDB_env* env_;
  const std::set<Key>& leave_out_;
  Rewritten& count_;
  MDB_txn* txn_ = nullptr;
  MDB_dbi dbi_ = 0;
  Key key_;
  std::size_t next_ = 0, pieces_ = 0;
  Buffer encoded_;
  std::set<Key> seen_, kept_;
};

/// Throws LmdbError(ENOSPC) when the copy would not fit. Finding that out by filling the disk
/// would hurt every process.
void check_room(const WriteTransaction& writing, const RewriteOptions& options) {
  struct statvfs fs {};
  if (options.live_bytes == 0 || ::fstatvfs(writing.fd(), &fs) != 0) return;
  std::uint64_t live = 0;
  try {
    const PageFile pages(writing.fd(), newest_snapshot(writing.fd()));
    live = bytes_of(survey(pages), pages);
  } catch (const Damaged&) {
    return;  // the copy finds it, too
  }
  if (std::min(live, options.live_bytes) > fs.f_bavail * fs.f_frsize) throw LmdbError("copying", ENOSPC);
}

void copy_intact(const StoreFile& file, int fd, FreshFile& fresh, const RewriteOptions& options,
                 Rewritten& count) {
  const PageFile pages(fd, newest_snapshot(fd));
  const RecentUses recent(file, moment_of(pages));
  std::set<Key> leave_out;
  try {
    leave_out = over_limit(pages, recent, options.live_bytes);
  } catch (const Damaged&) {  // the copy drops what is damaged; a later gc keeps the limit
  }
  Copy copy(pages, recent, fresh, leave_out, count);
  walk_tree(pages, pages.snapshot().main,
            {[&](const TreePage& page, const KeyBounds&) {
               if (page.kind() == TreePage::Kind::leaf) copy.leaf(page);
             },
             [&](const Damaged&) { ++count.damaged; }});
  copy.finish();
  count.dropped = leave_out.size();
}

}  // namespace

Rewritten rewrite(StoreFile& file, WriteTransaction& writing, const RewriteOptions& options) {
  Rewritten out;
  out.bytes_before = writing.file_bytes();
  remove_leftovers(file.path);
  if (!options.set_aside && !options.keep_aside) ::unlink(damaged_name(file.path).c_str());
  constexpr std::uint64_t kSlack = 64 << 20;
  check_room(writing, options);
  FreshFile fresh(file.path, out.bytes_before + out.bytes_before / 4 + kSlack);
  try {
    if (options.live_bytes > 0)
      copy_intact(file, writing.fd(), fresh, options, out);
    else
      for (const Surveyed& entry : survey(PageFile(writing.fd(), newest_snapshot(writing.fd()))))
        out.dropped += entry.pieces > 0 ? 1 : 0;
  } catch (const LmdbError& error) {  // LMDB reports short writes as EIO
    const int rc = error.rc() == EIO ? fresh.probe() : 0;
    if (out_of_space(rc)) throw LmdbError("copying", rc);
    throw;
  } catch (const Damaged&) {  // not even a meta page is sane: the fresh file stays empty
    ++out.damaged;
  }
  if (options.set_aside && out.bytes_before > 0) {
    const std::string aside = damaged_name(file.path);
    ::unlink(aside.c_str());
    if (::link(file.path.c_str(), aside.c_str()) != 0 && errno != EPERM && errno != EOPNOTSUPP)
      throw_store_error(file.path, std::string("cannot be set aside: ") + std::strerror(errno));
  }
  fresh.replace();
  forget_recent_uses(file);
  struct stat st {};
  if (::stat(file.path.c_str(), &st) == 0) out.bytes_after = static_cast<std::uint64_t>(st.st_size);
  return out;
}

}  // namespace kiln::cache
