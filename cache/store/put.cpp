// Puts, and what they do when there is no room or the file is damaged.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "cache/store/eviction.hpp"
#include "cache/store/file/fresh_file.hpp"
#include "cache/store/rewrite.hpp"
#include "cache/store/store_parts.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

constexpr auto kRoomWait = 5s;   // for the gate, while room is made
constexpr auto kHealWait = 5s;   // for the gate, before a damaged file is replaced
constexpr int kHealPauses = 10;  // times what it took, after healing failed
constexpr int kRoomAttempts = 4;

struct NoRoom {};

/// Whether the record that is there makes this put one of nothing.
bool serves(const Record& there, const Record& record, Existing existing) noexcept {
  return there.key_text == record.key_text &&
         (existing == Existing::kept || (there.facts == record.facts && there.image == record.image));
}

std::uint64_t size_of(const std::string& path) noexcept {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 ? static_cast<std::uint64_t>(st.st_size) : 0;
}

/// How a put ends that could not enter its file.
Put put_without(Entered entered) noexcept {
  return entered == Entered::gate_timeout ? Put::gate_timeout : Put::failed;
}

ino_t inode_of(const std::string& path) noexcept {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 ? st.st_ino : 0;
}

}  // namespace

Use fresh_use(std::int64_t tick) noexcept {
  const auto now = static_cast<std::uint64_t>(std::time(nullptr));
  return {tick, now, 1, now};
}

Entered Store::Impl::enter_writing(base::Deadline deadline, std::optional<Writing>& out, std::string& why) {
  for (const bool again : {true, false}) {
    const Entered entered = Writing::enter(file, deadline, out, why);
    if (entered == Entered::yes && !swept.exchange(true)) remove_leftovers(file.path);
    if (entered != Entered::absent || !again) return entered;
    create_directories(file.place);
    create_data_file(file.path);
  }
  return Entered::failed;
}

PutResult Store::Impl::put(const Key& key, const Record& record, std::chrono::milliseconds wait,
                           Existing existing) {
  if (!file.writable) return {Put::read_only, "the store was opened read-only"};
  const std::string encoded = encode(record);
  if (encoded.size() > kMaxRecordBytes || encoded.size() > live_limit() / 2)
    return {Put::full, "a record of " + std::to_string(encoded.size()) + " bytes; at most " +
                           std::to_string(std::min<std::uint64_t>(kMaxRecordBytes, live_limit() / 2)) +
                           " fit; raise KILN_CACHE_MAX_SIZE"};
  auto deadline = base::Deadline::after(wait), room_deadline = deadline;
  try {
    const std::string_view key_text = record.key_text;
    if (const auto there = get(key, &key_text, deadline);
        there.record && serves(*there.record, record, existing))
      return {Put::present, {}};  // without keeping writers waiting
  } catch (const Damaged&) {      // the writer finds it, too
  }

  PutResult out;
  const auto finish = [&](Put put, const std::string& detail) {
    out.put = put, out.detail = detail;
    return out;
  };
  bool healed = false;
  // Another process may have filled the file under a larger cap.
  int rooms = size_of(file.path) > options.cap_bytes ? 1 : 0;
  for (bool no_room = rooms > 0; rooms <= kRoomAttempts;) {
    const ino_t seen = inode_of(file.path);
    std::string damage;
    try {
      if (std::exchange(no_room, false)) {
        const std::uint64_t room =
            std::max<std::uint64_t>(options.cap_bytes / 20, 2 * encoded.size()) * rooms;
        Entered entered = Entered::yes;
        std::string why;
        const auto made = make_room(live_limit() - std::min(room, live_limit()), room_deadline, entered, why);
        if (!made) return finish(put_without(entered), why);
        out.evicted += *made;
        // Room that was made is not given up.
        if (*made > 0 || inode_of(file.path) != seen) deadline = base::Deadline::after(wait);
      }
      const PutResult written = write(key, record, encoded, existing, deadline);
      return finish(written.put, written.detail);
    } catch (const NoRoom&) {
      no_room = true;
      ++rooms;
      room_deadline = base::Deadline::after(kRoomWait);
    } catch (const CommitFailed& failure) {
      damage = failure.what();
    } catch (const LmdbError& error) {
      // What lies there for people to look at is the first to go.
      if (out_of_space(error.rc()) && ::unlink(damaged_name(file.path).c_str()) == 0) continue;
      const char* remedy = error.rc() == ENOMEM  ? "; raise the address-space limit (ulimit -v)"
                           : error.rc() == EFBIG ? "; raise the file-size limit (ulimit -f)"
                                                 : "";
      return finish(out_of_space(error.rc()) ? Put::full : Put::failed, error.what() + std::string(remedy));
    } catch (const Damaged& found) {
      damage = found.what();
    }
    if (damage.empty()) continue;
    if (std::exchange(healed, true))
      return finish(Put::failed, damage);  // a disk that fails again is not asked again
    try {
      out.notice = heal(damage, seen, base::Deadline::after(kHealWait));
    } catch (const LmdbError& error) {
      return finish(out_of_space(error.rc()) ? Put::full : Put::failed, damage + "; " + error.what());
    }
  }
  return finish(Put::full, "evicting " + std::to_string(out.evicted) + " entries made no room for " +
                               std::to_string(encoded.size()) + " bytes under the cap of " +
                               std::to_string(options.cap_bytes) +
                               " bytes; raise KILN_CACHE_MAX_SIZE, or run `kiln gc`");
}

bool Store::Impl::fits(std::uint64_t live_bytes) noexcept {
  if (live_bytes > live_limit() / 4 * 3 && !recent_made.exchange(true)) create_recent_uses(file);
  return live_bytes <= live_limit();
}

std::optional<std::uint64_t> Store::Impl::make_room(std::uint64_t live_bytes, base::Deadline deadline,
                                                    Entered& entered, std::string& why) {
  try {
    if (size_of(file.path) <= options.cap_bytes)
      return evict(file, {live_bytes, options.cap_bytes}, deadline);
  } catch (const LmdbError& error) {
    if (error.rc() != MDB_MAP_FULL) throw;
  }
  std::optional<Writing> writing;
  entered = enter_writing(deadline, writing, why);
  if (entered != Entered::yes) return std::nullopt;
  const std::uint64_t file_bytes = writing->file_bytes();
  const PageFile pages = writing->pages();
  if (file_bytes <= options.cap_bytes && pages.snapshot().live_bytes() <= live_bytes) return 0;
  WriteCheck(pages).whole_tree();  // what is damaged is healed, which keeps the damaged file
  try {
    return rewrite(file, *writing, {.live_bytes = live_bytes, .keep_aside = true}).dropped;
  } catch (const Damaged&) {
    throw;
  } catch (const Error&) {  // no room for a second file, or no right to make one
  }
  writing.reset();
  return evict(file, {live_bytes, file_bytes + kTreeSlack}, deadline);
}

PutResult Store::Impl::write(const Key& key, const Record& record, std::string_view encoded,
                             Existing existing, base::Deadline deadline) {
  std::optional<Writing> writing;
  std::string why;
  const Entered entered = enter_writing(deadline, writing, why);
  if (entered != Entered::yes) return {put_without(entered), why};
  const PageFile pages = writing->pages();
  Buffer there;
  if (copy_record(pages, key, there) == Copied::complete)
    if (const auto found = decode(there.view()); found && serves(*found, record, existing))
      return {Put::present, {}};
  put_record(*writing, pages, key, encoded, deadline);
  if (!writing->txn())
    return {Put::gate_timeout, "a reader did not leave the gate in time; a stopped process may hold it"};
  try {
    writing->commit();
  } catch (const LmdbError& error) {
    if (error.rc() == MDB_MAP_FULL) throw NoRoom{};
    throw;
  }
  return {Put::stored, {}};
}

/// Everything but the commit. No transaction was begun when readers stayed in the gate.
void Store::Impl::put_record(Writing& writing, const PageFile& pages, const Key& key,
                             std::string_view encoded, base::Deadline deadline) {
  const std::uint64_t pieces = encoded.size() / kPieceBytes + 1;
  const std::uint64_t needed = (pieces + kTreePagesPerPut) * pages.page_size();
  if (!fits(pages.snapshot().live_bytes() + needed)) throw NoRoom{};

  WriteCheck check_first(pages);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> values;
  const std::vector<std::string> old = pieces_of(pages, key, &values);
  // What lay damaged on the disk is found by the first put of a process; it takes milliseconds.
  const TreeRoot& tree = pages.snapshot().main;
  const bool first_put = !tree_checked && tree.branch_pages + tree.leaf_pages <= kPagesCheckedAtFirst;
  if (old.empty() && !first_put) {
    for (std::size_t i = 0; i < pieces; ++i) check_first.insertion(piece_key(key, i));
  } else {
    check_first.whole_tree();
    tree_checked = true;
    for (const auto& [page, size] : values) pages.check_overflow(page, size);
  }
  check_first.insertion(use_key(key));

  const std::uint64_t wanted = writing.file_bytes() + needed + kTreeSlack;
  if (!writing.begin(std::min(wanted, options.cap_bytes), deadline)) return;
  try {
    check("put", erase(writing.txn(), writing.dbi(), old));
    check("put", write_record(writing.txn(), writing.dbi(), key, encoded));
    check("put", write_use(writing.txn(), writing.dbi(), key, fresh_use(writing.tick())));
  } catch (const LmdbError& error) {
    if (error.rc() == MDB_MAP_FULL) throw NoRoom{};
    throw;
  }
}

/// Moves what is intact to a fresh file; says so, or nothing when another process did it. Throws Error(io)
/// when that cannot be done: the file stays where it is, its intact records are served, and after a while a
/// put tries again.
std::string Store::Impl::heal(const std::string& why, ino_t seen, base::Deadline deadline) {
  if (base::Clock::now().time_since_epoch().count() < no_heal_before)
    throw_store_error(file.path, why + "; moving its entries to a fresh file failed");
  std::optional<Writing> writing;
  std::string gate;
  if (enter_writing(deadline, writing, gate) != Entered::yes) throw_store_error(file.path, why + "; " + gate);
  struct stat st {};
  if (::fstat(writing->fd(), &st) == 0 && st.st_ino != seen) return {};
  writing->distrust();
  const auto started = base::Clock::now();
  std::string aside = "the damaged one is " + damaged_name(file.path) + " until `kiln gc`";
  Rewritten done;
  try {
    try {
      done = rewrite(file, *writing, {.live_bytes = live_limit(), .set_aside = true});
    } catch (const LmdbError& error) {
      if (!out_of_space(error.rc())) throw;
      // No room for a copy beside it, and with it there would never be any.
      done = rewrite(file, *writing, {.live_bytes = 0});
      aside = "the damaged one was dropped, since there is no room for both";
    }
  } catch (const Error&) {
    const auto now = base::Clock::now();
    no_heal_before = (now + kHealPauses * (now - started)).time_since_epoch().count();
    throw;
  }
  return "store " + file.path + ": " + why + "; moved " + std::to_string(done.kept) +
         " intact entries to a fresh file; " + aside;
}

Rewritten Store::Impl::replace(std::uint64_t live_bytes, base::Deadline deadline) {
  if (!file.writable) throw_store_error(file.path, "was opened read-only");
  std::optional<Writing> writing;
  std::string why;
  if (enter_writing(deadline, writing, why) != Entered::yes) throw_store_error(file.path, why);
  return rewrite(file, *writing, {.live_bytes = live_bytes});
}

}  // namespace kiln::cache
