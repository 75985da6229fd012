#include "cache/store/lookup.hpp"

#include <string>
#include <utility>

#include "cache/store/file/pieces.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

constexpr auto kBatchWait = 10s;  // for the gate, per batch of a listing
constexpr std::size_t kBatchEntries = 256;

template <class Result>
Result missed(Miss why) noexcept {
  Result out;
  out.miss = why;
  return out;
}

/// Returns what `read` returns, or a miss when it throws. Damage is believed only when a second read finds
/// it, because a meta page may have been read while a writer of another process wrote it.
template <class Result, class Read>
Result believe_second(const Read& read) noexcept {
  for (const bool again : {true, false}) {
    try {
      Result got = read();
      if (got.miss != Miss::damaged || !again) return got;
    } catch (const Damaged&) {
      if (!again) return missed<Result>(Miss::damaged);
    } catch (...) {
      break;
    }
  }
  return missed<Result>(Miss::unreadable);
}

Miss miss_of(Entered entered) noexcept {
  return entered == Entered::gate_timeout ? Miss::gate_timeout
         : entered == Entered::failed     ? Miss::unreadable
                                          : Miss::absent;
}

/// The record with texts of its own.
GetResult owned(const Key& key, const GotBytes& got) noexcept try {
  if (!got.record) return {{}, got.miss};
  return {Record{key, std::string(got.record->facts), std::string(got.record->key_text),
                 std::string(got.record->image)},
          {}};
} catch (...) {  // no memory
  return missed<GetResult>(Miss::unreadable);
}

}  // namespace

GotBytes Lookup::read_bytes(const Key& key, const std::string_view* key_text, base::Deadline deadline,
                            bool* due) {
  auto encoded = std::make_shared<Buffer>();
  std::string why;
  Copied copied = Copied::absent;
  const bool noted = key_text && upkeep_.may_note_recent();
  Moment moment;
  const Entered entered = read_pages(file_, deadline, why, [&](const PageFile& pages) {
    copied = copy_record(pages, key, *encoded);
    if (due && copied == Copied::complete) *due = use_is_due(pages, key);
    if (noted) moment = moment_of(pages);
  });
  if (copied == Copied::absent) return {{}, {}, miss_of(entered)};
  const auto record = copied == Copied::complete ? view_of(encoded->view()) : std::nullopt;
  if (!record) return {{}, {}, Miss::damaged};
  if (key_text && record->key_text != *key_text) return {{}, {}, Miss::other_key_text};
  if (noted) upkeep_.note_recent(moment, key);
  return {std::move(encoded), record, {}};
}

GotBytes Lookup::get_bytes(const Key& key, std::string_view key_text, base::Deadline deadline) noexcept {
  return believe_second<GotBytes>([&] {
    bool due = true;
    GotBytes got = read_bytes(key, &key_text, deadline, upkeep_.runs() ? nullptr : &due);
    if (got.record) upkeep_.note_use(key, due);
    return got;
  });
}

GetResult Lookup::get(const Key& key, std::string_view key_text, base::Deadline deadline) noexcept {
  return owned(key, get_bytes(key, key_text, deadline));
}

Peeked<Record> Lookup::peek(const Key& key, base::Deadline deadline) noexcept {
  GetResult got =
      owned(key, believe_second<GotBytes>([&] { return read_bytes(key, nullptr, deadline, nullptr); }));
  return {std::move(got.record), got.miss};
}

std::vector<Record> Lookup::find(const Digest& specialisation, base::Deadline deadline) noexcept {
  std::vector<Record> out;
  try {
    std::vector<Key> keys;
    read_pages_or_throw(file_, deadline, [&](const PageFile& pages) {
      keys.clear();
      RecordWalk walk(pages);
      std::optional<Key> from = Key{specialisation, {}};
      for (; from && walk.seek(*from) && walk.key().specialisation == specialisation;
           from = successor(walk.key()))
        keys.push_back(walk.key());
    });
    for (const Key& key : keys)
      if (auto found = peek(key, deadline)) out.push_back(std::move(*found));
  } catch (...) {  // returns what was found so far
  }
  return out;
}

Peeked<RecordText> Lookup::read_text(const Key& key, base::Deadline deadline) {
  Buffer begun;
  std::string why;
  Copied copied = Copied::absent;
  const Entered entered = read_pages(file_, deadline, why, [&](const PageFile& pages) {
    copied = copy_record(pages, key, begun, Upto::key_text);
  });
  if (copied == Copied::absent) return {{}, miss_of(entered)};
  auto head = copied == Copied::complete ? decode_head(begun.view()) : std::nullopt;
  if (!head) return {{}, Miss::damaged};
  return {RecordText{std::move(head->facts),
                     std::string(begun.view().substr(begun.size() - head->key_text_size))}};
}

Peeked<RecordText> Lookup::peek_text(const Key& key, base::Deadline deadline) noexcept {
  return believe_second<Peeked<RecordText>>([&] { return read_text(key, deadline); });
}

Lookup::Batch Lookup::read_batch(const Key& from, const Key& last) {
  struct Head {
    Key key;
    std::string bytes;
    std::uint64_t record_size = 0;
    Use use;
  };
  Batch out;
  std::vector<Head> heads;
  read_pages_or_throw(file_, base::Deadline::after(kBatchWait), [&](const PageFile& pages) {
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

Listed Lookup::list(const Key& first, const Key& last, const std::function<void(const Entry&)>& each) {
  Listed out;
  for (std::optional<Key> from = first; from;) {
    Batch batch = read_batch(*from, last);
    if (batch.unreadable > 0) batch = read_batch(*from, last);  // for the reason that believe_second gives
    for (const Entry& entry : batch.entries) each(entry);
    out.shown += batch.entries.size();
    out.unreadable += batch.unreadable;
    from = batch.next;
  }
  return out;
}

void Lookup::count(StoreStats& out) {
  read_pages_or_throw(file_, base::Deadline::after(kBatchWait), [&](const PageFile& pages) {
    RecordWalk walk(pages);
    std::uint64_t entries = 0;
    for (bool more = walk.seek({}); more; more = walk.next()) ++entries;
    out.entries = entries + walk.beheaded();
    out.live_bytes = pages.snapshot().live_bytes();
  });
}

}  // namespace kiln::cache
