#include "cache/store/store.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "cache/store/file/fresh_file.hpp"
#include "cache/store/store_parts.hpp"
#include "cache/store/verify.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

constexpr auto kBatchWait = 10s;  // for the gate, per batch of a listing
constexpr std::size_t kBatchEntries = 256;

/// What `read` returns, or a miss when it throws. It is asked once more before damage is believed: a meta
/// page may have been read while a writer of another process wrote it.
template <class Result, class Read>
Result believe_second(const Read& read) noexcept {
  for (const bool again : {true, false}) {
    try {
      Result got = read();
      if (got.miss != Miss::damaged || !again) return got;
    } catch (const Damaged&) {
      if (!again) return {{}, Miss::damaged};
    } catch (...) {
      break;
    }
  }
  return {{}, Miss::unreadable};
}

Miss miss_of(Entered entered) noexcept {
  return entered == Entered::gate_timeout ? Miss::gate_timeout
         : entered == Entered::failed     ? Miss::unreadable
                                          : Miss::absent;
}

}  // namespace

std::string_view to_string(Miss miss) noexcept {
  constexpr std::string_view names[] = {"absent", "damaged", "other_key_text", "gate_timeout", "unreadable"};
  return names[static_cast<int>(miss)];
}

std::string_view to_string(Put put) noexcept {
  constexpr std::string_view names[] = {"stored", "present", "read_only", "gate_timeout", "full", "failed"};
  return names[static_cast<int>(put)];
}

Entered Store::Impl::reading(base::Deadline deadline, std::string& why,
                             const std::function<void(const PageFile&)>& body) {
  std::optional<Reading> reading;
  const Entered entered = Reading::enter(file, deadline, reading, why);
  if (entered == Entered::yes) body(reading->pages());
  return entered;
}

void Store::Impl::reading_or_throw(base::Deadline deadline,
                                   const std::function<void(const PageFile&)>& body) {
  std::string why;
  const auto read = [&] {
    if (reading(deadline, why, body) != Entered::yes) throw_store_error(file.path, "cannot be read: " + why);
  };
  try {
    read();
  } catch (const Damaged&) {
    read();
  }
}

GetResult Store::Impl::get(const Key& key, const std::string_view* key_text, base::Deadline deadline,
                           bool* due) {
  Buffer encoded;
  std::string why;
  Copied copied = Copied::absent;
  const bool noted = key_text && may_note_recent();
  Moment moment;
  const Entered entered = reading(deadline, why, [&](const PageFile& pages) {
    copied = copy_record(pages, key, encoded);
    if (due && copied == Copied::complete) *due = use_is_due(pages, key);
    if (noted) moment = moment_of(pages);
  });
  if (copied == Copied::absent) return {{}, miss_of(entered)};
  auto record = copied == Copied::complete ? decode(encoded.view()) : std::nullopt;
  if (!record) return {{}, Miss::damaged};
  if (key_text && record->key_text != *key_text) return {{}, Miss::other_key_text};
  if (noted) note_recent(moment, key);
  return {std::move(record), {}};
}

Store::Store(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Store::~Store() { impl_->stop_upkeep(); }

std::shared_ptr<Store> Store::open(const StoreOptions& options) {
  StoreOptions o = options;
  o.cap_bytes = std::max(o.cap_bytes, kSmallestCap);
  auto impl = std::make_shared<Impl>(o);
  StoreFile& file = impl->file;
  struct stat st {};
  if (file.writable) {
    create_directories(file.place);
    if (::stat(file.path.c_str(), &st) != 0 && errno == ENOENT) create_data_file(file.path);
  }
  const FdPool::Lease fd = (file.writable ? file.writers : file.readers).lease();
  if (!fd)
    throw_store_error(file.path, std::strerror(errno),
                      file.writable ? "choose a directory that this user may write with KILN_CACHE_DIR" : "");
  if (state_of(fd.get(), file.path) == FileState::foreign) throw_store_error(file.path, kForeignFile);
  enter_reader(fd.get(), base::Deadline::after(0s));  // throws where the filesystem has no locks
  if (!file.writable) newest_snapshot(fd.get());      // nobody would heal it
  if (::stat(file.place.c_str(), &st) != 0) throw_store_error(file.place, std::strerror(errno));
  impl->identity = std::to_string(st.st_dev) + "-" + std::to_string(st.st_ino);
  return std::shared_ptr<Store>(new Store(std::move(impl)));
}

GetResult Store::get(const Key& key, std::string_view key_text, base::Deadline deadline) noexcept {
  return believe_second<GetResult>([&] {
    bool due = true;
    GetResult got = impl_->get(key, &key_text, deadline, impl_->upkeep_runs() ? nullptr : &due);
    if (got.record) impl_->note_use(key, due);
    return got;
  });
}

Peeked<Record> Store::peek(const Key& key, base::Deadline deadline) noexcept {
  GetResult got = believe_second<GetResult>([&] { return impl_->get(key, nullptr, deadline); });
  return {std::move(got.record), got.miss};
}

std::vector<std::pair<Key, Record>> Store::find(const Digest& specialisation,
                                                base::Deadline deadline) noexcept {
  std::vector<std::pair<Key, Record>> out;
  try {
    std::vector<Key> keys;
    impl_->reading_or_throw(deadline, [&](const PageFile& pages) {
      keys.clear();
      RecordWalk walk(pages);
      std::optional<Key> from = Key{specialisation, {}};
      for (; from && walk.seek(*from) && walk.key().specialisation == specialisation;
           from = successor(walk.key()))
        keys.push_back(walk.key());
    });
    for (const Key& key : keys)
      if (auto found = peek(key, deadline)) out.emplace_back(key, std::move(*found));
  } catch (...) {  // what was found so far
  }
  return out;
}

PutResult Store::put(const Key& key, const Record& record, std::chrono::milliseconds wait,
                     Existing existing) noexcept {
  PutResult out;
  try {
    try {
      out = impl_->put(key, record, wait, existing);
      if (out.put == Put::stored || out.put == Put::present) impl_->note_use(key, true);
    } catch (const std::exception& error) {
      out.detail = error.what();
    }
  } catch (...) {  // no memory for the detail
  }
  return out;
}

Peeked<RecordText> Store::Impl::peek_text(const Key& key, base::Deadline deadline) {
  Buffer begun;
  std::string why;
  Copied copied = Copied::absent;
  const Entered entered = reading(
      deadline, why, [&](const PageFile& pages) { copied = copy_record(pages, key, begun, Upto::key_text); });
  if (copied == Copied::absent) return {{}, miss_of(entered)};
  auto head = copied == Copied::complete ? decode_head(begun.view()) : std::nullopt;
  if (!head) return {{}, Miss::damaged};
  return {RecordText{std::move(head->facts),
                     std::string(begun.view().substr(begun.size() - head->key_text_size))}};
}

Peeked<RecordText> Store::peek_text(const Key& key, base::Deadline deadline) noexcept {
  return believe_second<Peeked<RecordText>>([&] { return impl_->peek_text(key, deadline); });
}

Store::Impl::Batch Store::Impl::read_batch(const Key& from, const Key& last) {
  struct Head {
    Key key;
    std::string bytes;
    std::uint64_t record_size = 0;
    Use use;
  };
  Batch out;
  std::vector<Head> heads;
  reading_or_throw(base::Deadline::after(kBatchWait), [&](const PageFile& pages) {
    heads.clear();
    RecordWalk walk(pages);
    TreeCursor uses(pages);
    bool more = walk.seek(from);
    for (; more && !(last < walk.key()) && heads.size() < kBatchEntries; more = walk.next()) {
      Head& head = heads.emplace_back();
      head.key = walk.key();
      head.bytes = walk.head(head.record_size);
      head.use = read_use(uses, head.key).value_or(Use{});
    }
    out.next = more && !(last < walk.key()) ? std::optional(walk.key()) : std::nullopt;
    out.unreadable = walk.beheaded();
  });
  out.entries.reserve(heads.size());
  for (const Head& entry : heads) {
    if (auto head = decode_head(entry.bytes))
      out.entries.push_back({entry.key, std::move(head->facts), entry.record_size, head->image_size,
                             entry.use.last_s, entry.use.count});
    else
      ++out.unreadable;
  }
  return out;
}

Listed Store::list(const Key& first, const Key& last, const std::function<void(const Entry&)>& each) {
  Listed out;
  for (std::optional<Key> from = first; from;) {
    Impl::Batch batch = impl_->read_batch(*from, last);
    if (batch.unreadable > 0) batch = impl_->read_batch(*from, last);  // as believe_second
    for (const Entry& entry : batch.entries) each(entry);
    out.shown += batch.entries.size();
    out.unreadable += batch.unreadable;
    from = batch.next;
  }
  return out;
}

StoreStats Store::stats() {
  StoreStats out;
  out.cap_bytes = impl_->options.cap_bytes;
  impl_->reading_or_throw(base::Deadline::after(kBatchWait), [&](const PageFile& pages) {
    RecordWalk walk(pages);
    std::uint64_t entries = 0;
    for (bool more = walk.seek({}); more; more = walk.next()) ++entries;
    out.entries = entries + walk.beheaded();
    out.live_bytes = pages.snapshot().live_bytes();
  });
  struct stat st {};
  if (::stat(impl_->file.path.c_str(), &st) == 0) out.file_bytes = static_cast<std::uint64_t>(st.st_size);
  return out;
}

Verified Store::verify(const std::function<void(std::uint64_t)>& progress) {
  return cache::verify(impl_->file, progress);
}

Rewritten Store::gc(std::uint64_t max_bytes, base::Deadline deadline) {
  impl_->write_uses(deadline);
  return impl_->replace(max_bytes, deadline);
}

Rewritten Store::clear(base::Deadline deadline) { return impl_->replace(0, deadline); }

void Store::write_uses(base::Deadline deadline) noexcept { impl_->write_uses(deadline); }

const std::string& Store::directory() const noexcept { return impl_->file.directory; }
std::string Store::identity() const { return impl_->identity; }
std::chrono::milliseconds Store::put_wait() const noexcept { return impl_->options.put_wait; }
bool Store::writable() const noexcept { return impl_->file.writable; }

}  // namespace kiln::cache
