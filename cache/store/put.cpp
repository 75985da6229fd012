#include "cache/store/put.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "cache/store/file/fresh_file.hpp"
#include "cache/store/file/page_check.hpp"
#include "cache/store/file/pieces.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

constexpr auto kRoomWait = 5s;  // for the gate, while room is made
constexpr auto kHealWait = 5s;  // for the gate, before a damaged file is replaced
constexpr int kRoomAttempts = 4;

constexpr std::uint64_t kTreePagesPerPut = 64;
constexpr std::uint64_t kPagesCheckedAtFirst = 1024;

struct NoRoom {};

/// Returns whether the record that is there leaves this put nothing to write.
bool serves(const RecordView& there, const Record& record, Existing existing) noexcept {
  return there.key_text == record.key_text &&
         (existing == Existing::kept || (there.facts == record.facts && there.image == record.image));
}

/// The result of a put that could not enter its file.
Put put_without(Entered entered) noexcept {
  return entered == Entered::gate_timeout ? Put::gate_timeout : Put::failed;
}

ino_t inode_of(const std::string& path) noexcept {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 ? st.st_ino : 0;
}

/// The first use of an entry, which is published now.
Use fresh_use(std::int64_t tick) noexcept {
  const auto now = static_cast<std::uint64_t>(std::time(nullptr));
  return {tick, now, 1, now};
}

/// One record of many, as it will be stored.
struct Encoded {
  std::size_t index;
  const Key* key;
  std::string bytes;
};

/// Returns the records that are not there, ordered by key. Returns nothing when single puts must do the work:
/// a record is there with other bytes and must be replaced, is too large, or has a key that comes twice.
std::optional<std::vector<Encoded>> missing_of(const PageFile& pages, const std::vector<Record>& records,
                                               Existing existing, std::vector<PutResult>& out) {
  std::vector<Encoded> missing;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Record& record = records[i];
    const Key& key = record.key;
    Buffer there;
    const Copied copied = copy_record(pages, key, there);
    if (copied == Copied::damaged) return std::nullopt;
    if (copied == Copied::complete) {
      const auto found = view_of(there.view());
      if (!found || !serves(*found, record, existing)) return std::nullopt;
      out[i].put = Put::present;
      continue;
    }
    if (!pieces_of(pages, key).empty()) return std::nullopt;
    missing.push_back({i, &record.key, encode(record)});
    if (missing.back().bytes.size() > kMaxRecordBytes) return std::nullopt;
  }
  std::sort(missing.begin(), missing.end(),
            [](const Encoded& a, const Encoded& b) { return *a.key < *b.key; });
  const auto twice = std::adjacent_find(missing.begin(), missing.end(),
                                        [](const Encoded& a, const Encoded& b) { return *a.key == *b.key; });
  if (twice != missing.end()) return std::nullopt;
  return missing;
}

}  // namespace

PutResult Puts::put(const Record& record, std::chrono::milliseconds wait, Existing existing) {
  if (!file_.file().writable) return {Put::read_only, "the store was opened read-only"};
  const std::string encoded = encode(record);
  if (encoded.size() > kMaxRecordBytes || encoded.size() > file_.live_limit() / 2)
    return {Put::full, "a record of " + std::to_string(encoded.size()) + " bytes; at most " +
                           std::to_string(std::min<std::uint64_t>(kMaxRecordBytes, file_.live_limit() / 2)) +
                           " fit; a larger KILN_CACHE_MAX_SIZE allows up to " +
                           std::to_string(kMaxRecordBytes)};
  auto deadline = base::Deadline::after(wait), room_deadline = deadline;
  try {
    const std::string_view key_text = record.key_text;
    if (const auto there = lookup_.read_bytes(record.key, &key_text, deadline);
        there.record && serves(*there.record, record, existing))
      return {Put::present, {}};  // found without making writers wait
  } catch (const Damaged&) {      // the writer finds the damage, too
  }

  PutResult out;
  const auto finish = [&](Put put, const std::string& detail) {
    out.put = put, out.detail = detail;
    return out;
  };
  bool healed = false;
  // Another process may have filled the file under a larger cap.
  int rooms = size_of(file_.file().path) > file_.cap_bytes() ? 1 : 0;
  for (bool no_room = rooms > 0; rooms <= kRoomAttempts;) {
    const ino_t seen = inode_of(file_.file().path);
    std::string damage;
    try {
      if (std::exchange(no_room, false)) {
        const std::uint64_t room =
            std::max<std::uint64_t>(file_.cap_bytes() / 20, 2 * encoded.size()) * rooms;
        Entered entered = Entered::yes;
        std::string why;
        const auto made = file_.make_room(file_.live_limit() - std::min(room, file_.live_limit()),
                                          room_deadline, entered, why);
        if (!made) return finish(put_without(entered), why);
        out.evicted += *made;
        // Room that was made shall not be lost: the put gets its whole wait again.
        if (*made > 0 || inode_of(file_.file().path) != seen) deadline = base::Deadline::after(wait);
      }
      PutResult written = write(record, encoded, existing, deadline);
      out.replaced = std::move(written.replaced);
      return finish(written.put, written.detail);
    } catch (const NoRoom&) {
      no_room = true;
      ++rooms;
      room_deadline = base::Deadline::after(kRoomWait);
    } catch (const CommitFailed& failure) {
      damage = failure.what();
    } catch (const LmdbError& error) {
      // The damaged file that was kept for people to look at goes first.
      if (out_of_space(error.rc()) && ::unlink(damaged_name(file_.file().path).c_str()) == 0) continue;
      const char* remedy = error.rc() == ENOMEM  ? "; raise the address-space limit (ulimit -v)"
                           : error.rc() == EFBIG ? "; raise the file-size limit (ulimit -f)"
                                                 : "";
      return finish(out_of_space(error.rc()) ? Put::full : Put::failed, error.what() + std::string(remedy));
    } catch (const Damaged& found) {
      damage = found.what();
    }
    if (damage.empty()) continue;
    if (std::exchange(healed, true))
      return finish(Put::failed, damage);  // a disk that fails twice is not tried again
    try {
      out.notice = file_.heal(damage, seen, base::Deadline::after(kHealWait));
    } catch (const LmdbError& error) {
      return finish(out_of_space(error.rc()) ? Put::full : Put::failed, damage + "; " + error.what());
    }
  }
  return finish(Put::full, "evicting " + std::to_string(out.evicted) + " entries made no room for " +
                               std::to_string(encoded.size()) + " bytes under the cap of " +
                               std::to_string(file_.cap_bytes()) +
                               " bytes; raise KILN_CACHE_MAX_SIZE, or run `kiln gc`");
}

PutResult Puts::write(const Record& record, std::string_view encoded, Existing existing,
                      base::Deadline deadline) {
  std::optional<WriteTransaction> writing;
  std::string why;
  const Entered entered = file_.enter(deadline, writing, why);
  if (entered != Entered::yes) return {put_without(entered), why};
  const PageFile pages = writing->pages();
  PutResult out{Put::stored, {}};
  Buffer there;
  if (copy_record(pages, record.key, there) == Copied::complete) {
    if (const auto found = view_of(there.view())) {
      if (serves(*found, record, existing)) return {Put::present, {}};
      out.replaced = std::string(found->facts);
    }
  }
  write_in(*writing, pages, record.key, encoded, deadline);
  if (!writing->txn())
    return {Put::gate_timeout, "a reader did not leave the gate in time; a stopped process may hold it"};
  try {
    writing->commit();
  } catch (const LmdbError& error) {
    if (error.rc() == MDB_MAP_FULL) throw NoRoom{};
    throw;
  }
  return out;
}

bool Puts::is_first_check(const PageFile& pages) const noexcept {
  const TreeRoot& tree = pages.snapshot().main;
  return !tree_checked_ && tree.branch_pages + tree.leaf_pages <= kPagesCheckedAtFirst;
}

/// Does everything but the commit. When readers stayed in the gate, no transaction was begun.
void Puts::write_in(WriteTransaction& writing, const PageFile& pages, const Key& key,
                    std::string_view encoded, base::Deadline deadline) {
  const std::uint64_t pieces = encoded.size() / kPieceBytes + 1;
  const std::uint64_t needed = (pieces + kTreePagesPerPut) * pages.page_size();
  if (!file_.fits(pages.snapshot().live_bytes() + needed)) throw NoRoom{};

  PageCheck check_first(pages);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> values;
  const std::vector<std::string> old = pieces_of(pages, key, &values);
  // The first put of a process checks the whole tree if it is small, to find damage that was there
  // before. That takes milliseconds.
  if (old.empty() && !is_first_check(pages)) {
    for (std::size_t i = 0; i < pieces; ++i) check_first.insertion(piece_key(key, i));
  } else {
    check_first.whole_tree();
    tree_checked_ = true;
    for (const auto& [page, size] : values) pages.check_overflow(page, size);
  }
  check_first.insertion(use_key(key));

  const std::uint64_t wanted = writing.file_bytes() + needed + kTreeSlack;
  if (!writing.begin(std::min(wanted, file_.cap_bytes()), deadline)) return;
  try {
    check("put", erase(writing.txn(), writing.dbi(), old));
    check("put", write_record(writing.txn(), writing.dbi(), key, encoded));
    check("put", write_use(writing.txn(), writing.dbi(), key, fresh_use(writing.tick())));
  } catch (const LmdbError& error) {
    if (error.rc() == MDB_MAP_FULL) throw NoRoom{};
    throw;
  }
}

bool Puts::put_together(const std::vector<Record>& records, std::chrono::milliseconds wait, Existing existing,
                        std::vector<PutResult>& out) {
  if (!file_.file().writable) return false;
  const auto deadline = base::Deadline::after(wait);
  std::optional<WriteTransaction> writing;
  std::string why;
  if (file_.enter(deadline, writing, why) != Entered::yes) return false;
  const PageFile pages = writing->pages();
  const auto missing = missing_of(pages, records, existing, out);
  if (!missing) return false;
  if (missing->empty()) return true;

  std::uint64_t needed = 0;
  PageCheck check_first(pages);
  if (is_first_check(pages)) {
    check_first.whole_tree();
    tree_checked_ = true;
  }
  for (const Encoded& record : *missing) {
    const std::uint64_t pieces = record.bytes.size() / kPieceBytes + 1;
    needed += (pieces + kTreePagesPerPut) * pages.page_size();
    for (std::size_t piece = 0; piece < pieces; ++piece) check_first.insertion(piece_key(*record.key, piece));
    check_first.insertion(use_key(*record.key));
  }
  if (!file_.fits(pages.snapshot().live_bytes() + needed)) return false;
  const std::uint64_t wanted = writing->file_bytes() + needed + kTreeSlack;
  if (!writing->begin(std::min(wanted, file_.cap_bytes()), deadline)) return false;
  for (const Encoded& record : *missing) {
    check("put", write_record(writing->txn(), writing->dbi(), *record.key, record.bytes));
    check("put", write_use(writing->txn(), writing->dbi(), *record.key, fresh_use(writing->tick())));
  }
  writing->commit();
  for (const Encoded& record : *missing) out[record.index].put = Put::stored;
  return true;
}

}  // namespace kiln::cache
