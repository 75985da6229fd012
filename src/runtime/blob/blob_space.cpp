#include "runtime/blob/blob_space.hpp"

#include <algorithm>
#include <ctime>
#include <set>
#include <utility>

#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/process.hpp"
#include "base/quote.hpp"
#include "base/wire.hpp"
#include "cache/blob/join.hpp"
#include "cache/flight/flight.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {
namespace {

using namespace std::chrono_literals;

constexpr auto kReadPatience = 5s;  // at the gate, for a stopped writer of another process
constexpr auto kErasePatience = 2s;
constexpr auto kInterruptible = 100ms;  // between two looks whether a caller's wait shall end
constexpr auto kQueuePatience = 60s;    // for a blob that this process has queued itself
constexpr std::uint64_t kBatch = std::uint64_t{16} << 20;

/// For people: "triton 3f2a..., 12 KiB"; keys may be any bytes.
std::string subject_of(const std::string& space, std::string_view key) {
  return "blob " + base::quote(key, 60) + " of space " + space;
}

cache::Bytes served(SpaceState& space, cache::Bytes&& content) {
  ++space.counts.hits;
  space.counts.bytes_read += content.view.size();
  return std::move(content);
}

/// Waits for the flight of a key. With `interrupted` it waits in slices, and counts them as one wait.
cache::FlightFile::Taken take_flight(SpaceState& space, const std::atomic<bool>& ended,
                                     cache::FlightFile& file, const Key& key, base::Deadline deadline,
                                     const std::function<bool()>& interrupted, std::string_view subject) {
  bool told = false;
  bool waited = false;
  const auto on_wait = [&] {
    if (!std::exchange(told, true)) ++space.counts.waits;
  };
  for (;;) {
    const base::Deadline slice =
        interrupted ? earlier(deadline, base::Deadline::after(kInterruptible)) : deadline;
    auto taken = file.take(key, slice, &ended, on_wait, subject);
    waited = waited || taken.waited;
    taken.waited = waited;
    if (taken.end != cache::FlightFile::End::timed_out) return taken;
    if (!interrupted || deadline.passed()) {
      ++space.counts.wait_timeouts;
      return taken;
    }
    if (interrupted()) return taken;
  }
}

}  // namespace

BlobSpace::BlobSpace(Core& core, const BlobSpaceOptions& options, const std::atomic<bool>& ended,
                     const BlobSpace* sibling)
    : core_(core),
      options_(options),
      shared_(sibling ? sibling->shared_
                      : std::make_shared<SpaceState>(
                            options.space, options.budget_bytes ? options.budget_bytes
                                                                : core.config().cache_max_bytes() / 2)),
      ended_(ended) {
  cache::check_blob_name({options.space, options.compatibility, {}});
}

const BlobCounts& BlobSpace::counts() const noexcept { return shared_->counts; }

void BlobSpace::describe_used(std::map<std::string, std::set<std::string>>& out) const {
  for (const auto& [key, content] : shared_->used())
    out[key + '\n' + options_.compatibility].insert(content.hex());
}

BlobSpace::~BlobSpace() { shared_->save(core_.state().stores); }

bool BlobSpace::flush(base::Deadline deadline) {
  const bool done = core_.path().publisher().flush(deadline);
  shared_->save(core_.state().stores);
  return done;
}

cache::BlobName BlobSpace::name_of(std::string_view key) const {
  cache::BlobName name{options_.space, options_.compatibility, std::string(key)};
  cache::check_blob_name(name);
  return name;
}

BlobSpace::Found BlobSpace::get(std::string_view key) {
  shared_->begin_call(core_.state().stores);
  const cache::BlobKey made = cache::blob_key(name_of(key));
  if (Found there = find(made)) return there;
  if (Found there = ask_tier(made, nullptr)) return there;
  return missed(key);
}

/// A blob that this process has put is there, also while it is queued. The queue is asked before the stores: a blob that
/// is stored in between would otherwise be in neither.
BlobSpace::Found BlobSpace::find(const cache::BlobKey& made) {
  const bool queued = shared_->is_queued(made.key);
  if (Found there = read(made)) return there;
  if (!queued) return std::nullopt;
  flush(base::Deadline::after(kQueuePatience));
  return read(made);
}

/// The stores are asked in the order of every lookup. A damaged record is a miss, and another store is asked.
BlobSpace::Found BlobSpace::read(const cache::BlobKey& made) {
  for (const auto& store : core_.state().stores.asked())
    if (Found there = read_from(*store, made)) return served(*shared_, std::move(*there));
  return std::nullopt;
}

BlobSpace::Found BlobSpace::read_from(cache::Store& store, const cache::BlobKey& made) try {
  const auto patience = base::Deadline::after(kReadPatience);
  const auto fetch = [&](const cache::BlobKey& wanted) {
    cache::GotBytes got = store.get_bytes(wanted.key, wanted.text, patience);
    if (!got.record && got.miss == cache::Miss::damaged) ++shared_->counts.damaged;
    return got;
  };
  const auto piece = [](const cache::BlobFacts& facts, const cache::GotBytes& got) {
    return cache::piece_of(facts, {got.owner, got.record->image});
  };
  const cache::GotBytes got = fetch(made);
  if (!got.record) return std::nullopt;
  const cache::BlobFacts facts = cache::decode_blob(got.record->facts);
  Found content;
  if (facts.parts == 0) {
    content = piece(facts, got);
  } else if (facts.size <= cache::kLargestBlob) {
    cache::JoinedContent joined(facts);
    for (std::uint32_t i = 0; i < facts.parts; ++i) {
      const cache::GotBytes part = fetch(cache::blob_part_key(facts, i));
      if (!part.record) return std::nullopt;  // evicted: the blob is whole or absent
      joined.add(piece(cache::decode_blob(part.record->facts), part));
    }
    content = joined.whole();
  }
  if (!content) return ++shared_->counts.damaged, std::nullopt;
  shared_->use(facts.key, facts.content);
  return content;
} catch (const base::Malformed&) {
  ++shared_->counts.damaged;  // facts of another version of kiln
  return std::nullopt;
}

/// Asks the tier for one record of a blob, and takes it only where it is the one of this key. Without `wait` it makes one
/// look, and takes no lease.
std::optional<cache::Record> BlobSpace::ask_tier_once(const cache::BlobKey& made, FleetWait* wait) {
  if (!core_.permission().tier) return std::nullopt;
  const auto tier = core_.path().fleet().tier();
  if (!tier) return std::nullopt;
  fleet::Tier::Reply reply = tier->ask({.key = made.key,
                                        .key_text = made.text,
                                        .acceptable =
                                            [&](const cache::Record& record) {
                                              try {
                                                const auto facts = cache::decode_blob(record.facts);
                                                return cache::key_of(facts).text == record.key_text;
                                              } catch (const base::Malformed&) {
                                                return false;
                                              }
                                            },
                                        .may_compile = wait != nullptr,
                                        .in_a_hurry = true,
                                        .most_leases = 64,
                                        .deadline = wait ? wait->deadline : base::Deadline::never(),
                                        .interrupted = wait ? wait->interrupted : nullptr,
                                        .cancelled = &ended_,
                                        .on_wait = [&] { ++shared_->counts.waits; }});
  if (wait) {
    wait->lease = std::move(reply.lease);
    wait->in_vain = reply.waited && !reply.entry && !wait->lease;
  }
  return std::move(reply.entry);
}

/// A blob with parts is an entry for each part, and one that names them.
BlobSpace::Found BlobSpace::ask_tier(const cache::BlobKey& made, FleetWait* wait) {
  const std::optional<cache::Record> record = ask_tier_once(made, wait);
  if (!record) return std::nullopt;
  const cache::BlobFacts facts = cache::decode_blob(record->facts);
  if (facts.size > cache::kLargestBlob) return std::nullopt;
  cache::JoinedContent joined(facts);
  if (facts.parts == 0) joined.add(cache::piece_of(facts, {{}, record->image}));
  for (std::uint32_t i = 0; joined.fits() && i < facts.parts; ++i) {
    const auto part = ask_tier_once(cache::blob_part_key(facts, i), nullptr);
    joined.add(part ? cache::piece_of(cache::decode_blob(part->facts), {{}, part->image}) : std::nullopt);
  }
  Found content = joined.whole();
  if (!content) return std::nullopt;
  ++shared_->counts.remote_hits;
  std::string why;
  store(facts, content->view, nullptr, nullptr, From::tier, why);
  return served(*shared_, std::move(*content));
}

/// Mode sealed makes nothing, as with kernels: a miss counts before the seal, too. Programs that know nothing of kiln
/// never seal.
BlobSpace::Found BlobSpace::missed(std::string_view key) {
  ++shared_->counts.misses;
  const Permission now = core_.permission();
  const bool is_sealed = now.after_seal != MissAfterSeal::quiet || now.counts_sealed_miss;
  if (!is_sealed || options_.sealed_miss == SealedMiss::quiet) return std::nullopt;
  const std::string subject = subject_of(options_.space, key);
  if (now.after_seal != MissAfterSeal::quiet)
    core_.events().tell(KILN_EVENT_MISS_AFTER_SEAL, subject, {}, {});
  if (now.after_seal == MissAfterSeal::warn) {
    base::warn(subject + " was not in the cache after the seal");
    return std::nullopt;
  }
  ++shared_->counts.sealed_misses;
  if (options_.sealed_miss == SealedMiss::refuse)
    throw Error(Errc::not_ready, "sealed: " + subject + " is in no store; make it before the seal");
  base::warn_once("sealed " + subject, subject + " is in no store, and this process is sealed");
  return std::nullopt;
}

/// Puts the records of a blob in their order: the parts come first, so that a blob that is found has them.
/// `afterwards` receives the last record.
BlobSpace::Put BlobSpace::store(const cache::BlobName& name, std::string_view content,
                                std::shared_ptr<cache::Flight> flight,
                                const Publication::Afterwards& afterwards, From from, std::string& why) {
  const auto writable = core_.state().stores.writable();
  const Key blob = cache::blob_key(name).key;
  cache::Put worst = cache::Put::present;
  if (!writable) why = "there is no store that this process may write", worst = cache::Put::read_only;
  cache::each_record(name, content, cache::kBlobPart, [&](cache::Record&& record) {
    const bool last = record.key == blob;
    if (last) shared_->use(name.key, cache::decode_blob(record.facts).content);
    if (options_.behind && writable) {
      Publication queued{.record = std::move(record),
                         .subject = "a blob of space " + options_.space,
                         .store = writable,
                         .flight = last ? std::move(flight) : nullptr,
                         .afterwards = last ? afterwards : nullptr};
      queue(std::move(queued), blob, last, from);
      return;
    }
    if (in_store(worst)) {
      const cache::PutResult done = writable->put(record, writable->put_wait(), cache::Existing::replaced);
      if (!done.notice.empty()) base::warn(done.notice);
      shared_->written(*writable, done, record.size());
      if (done.put != cache::Put::present) worst = done.put;
      why = done.detail;
    }
    if (last && afterwards) afterwards(std::move(record));
  });
  if (options_.behind && writable) return Put::queued;
  if (!in_store(worst) && writable)
    base::warn_once(
        "put blob " + std::string(to_string(worst)) + options_.space,
        "could not cache a blob of space " + options_.space + " in '" + writable->directory() + "': " + why);
  if (flight) in_store(worst) ? flight->published() : flight->unpublished();
  return !in_store(worst) ? Put::skipped : worst == cache::Put::stored ? Put::stored : Put::present;
}

/// Hands one record of a blob to the thread that stores behind its callers. Waits while its queue is full.
void BlobSpace::queue(Publication record, const Key& blob, bool last, From from) {
  if (last) shared_->queue(blob), shared_->count_in(record.store->directory());
  record.existing = cache::Existing::replaced;
  record.counted = [shared = shared_, store = record.store, bytes = record.record.size(), blob, last,
                    from](const cache::PutResult& result) {
    shared->written(*store, result, bytes);
    if (!last) return;
    if (from == From::caller) shared->ended(result.put);
    shared->unqueue(blob);
  };
  core_.path().publisher().hand_over(std::move(record), WhenFull::wait);
}

BlobSpace::Put BlobSpace::put(std::string_view key, std::string_view content,
                              std::unique_ptr<BlobLease> lease, std::string& why) {
  shared_->begin_call(core_.state().stores);
  const cache::BlobName name = name_of(key);
  std::shared_ptr<cache::Flight> flight = lease ? std::move(lease->host_) : nullptr;
  const std::shared_ptr<fleet::HeldLease> made_for = lease ? std::move(lease->fleet_) : nullptr;
  lease.reset();  // this thread may take it again
  const Put done =
      store(name, content, std::move(flight), publication_of(name, content, made_for), From::caller, why);
  if (done != Put::queued)
    shared_->ended(done == Put::skipped  ? cache::Put::failed
                   : done == Put::stored ? cache::Put::stored
                                         : cache::Put::present);
  return done;
}

/// Makes the function that takes a blob on to the tier. A blob that one entry of the tier cannot hold is sent here
/// and now, in parts.
Publication::Afterwards BlobSpace::publication_of(const cache::BlobName& name, std::string_view content,
                                                  const std::shared_ptr<fleet::HeldLease>& lease) {
  const auto tier = core_.permission().tier ? core_.path().fleet().tier() : nullptr;
  if (!tier || !tier->writes()) return nullptr;
  if (lease) lease->compiled();
  const auto send = [tier, what = "blobs of " + options_.space](cache::Record&& record,
                                                                std::shared_ptr<fleet::HeldLease> held,
                                                                fleet::Tier::Full full) {
    tier->publish({std::move(record), {}, what}, {static_cast<std::int64_t>(std::time(nullptr)), false, {}},
                  std::move(held), full);
  };
  if (content.size() <= kTierPart)
    return [send, lease](cache::Record&& record) { send(std::move(record), lease, fleet::Tier::Full::drop); };
  const Key blob = cache::blob_key(name).key;
  cache::each_record(name, content, kTierPart, [&](cache::Record&& record) {
    const bool last = record.key == blob;
    send(std::move(record), last ? lease : nullptr, fleet::Tier::Full::wait);
  });
  return nullptr;
}

BlobSpace::PutMany BlobSpace::put_many(const std::vector<Item>& items) {
  shared_->begin_call(core_.state().stores);
  PutMany out;
  const auto writable = core_.state().stores.writable();
  if (!writable) {
    out.skipped = items.size();
    out.why = "there is no store that this process may write";
    return out;
  }
  std::vector<cache::Record> records;
  std::uint64_t bytes = 0;
  const auto write = [&] {
    const std::vector<cache::PutResult> results = writable->put_many(records, cache::Existing::replaced);
    for (std::size_t i = 0; i < results.size(); ++i) {
      shared_->written(*writable, results[i], records[i].size());
      shared_->ended(results[i].put);
      if (results[i].put == cache::Put::stored)
        ++out.stored;
      else if (results[i].put == cache::Put::present)
        ++out.present;
      else
        ++out.skipped, out.why = results[i].detail;
    }
    records.clear();
    bytes = 0;
  };
  for (const Item& item : items)
    cache::each_record(name_of(item.key), item.content, cache::kBlobPart, [&](cache::Record&& record) {
      bytes += record.size();
      records.push_back(std::move(record));
      if (bytes >= kBatch) write();
    });
  write();
  return out;
}

BlobSpace::Leased BlobSpace::lease(std::string_view key, base::Deadline deadline,
                                   const std::function<bool()>& interrupted) {
  shared_->begin_call(core_.state().stores);
  const cache::BlobKey made = cache::blob_key(name_of(key));
  Leased out;
  if ((out.found = find(made))) return out;
  if (shared_->is_mine(made.key)) return out;
  const std::string subject = subject_of(options_.space, key);
  bool was_interrupted = false;
  std::function<bool()> ask;
  if (interrupted) ask = [&] { return was_interrupted = interrupted(); };
  std::shared_ptr<cache::Flight> host;
  try {
    if (const auto file = core_.state().stores.flight_file()) {
      auto taken = take_flight(*shared_, ended_, *file, made.key, deadline, ask, subject);
      host = std::move(taken.flight);
      if (taken.waited && (out.found = read(made))) return out;
      if (!host) {
        if (!was_interrupted) missed(key);
        return out;
      }
    }
  } catch (const Error& error) {
    base::warn_once("flight", std::string(error.what()) + "; blobs are made without the lock");
  }
  FleetWait wait{deadline, ask};
  if ((out.found = ask_tier(made, &wait)) || was_interrupted) return out;
  if (wait.in_vain && !ended_) ++shared_->counts.wait_timeouts;
  missed(key);
  if (host) host->compiling(subject);
  out.lease =
      std::make_unique<BlobLease>(std::move(host), std::move(wait.lease), mark_mine(shared_, made.key));
  return out;
}

std::vector<BlobSpace::Listed> BlobSpace::list() {
  if (shared_->has_queued()) flush(base::Deadline::after(kQueuePatience));
  const cache::KeyRange range = cache::keys_of_space(options_.space);
  std::vector<Listed> out;
  std::set<Key> seen;
  for (const auto& store : core_.state().stores.asked()) {
    cache::PartCount parts;
    std::vector<std::pair<cache::BlobFacts, cache::Entry>> heads;
    store->list(range.first, range.last, [&](const cache::Entry& entry) {
      if (!cache::is_blob(entry.facts)) return;
      try {
        cache::BlobFacts facts = cache::decode_blob(entry.facts);
        if (facts.space != options_.space) return;
        parts.add(facts);
        if (facts.part == 0) heads.emplace_back(std::move(facts), entry);
      } catch (const base::Malformed&) {  // of another version of kiln
      }
    });
    for (auto& [facts, entry] : heads)
      if (parts.has_all(facts) && seen.insert(entry.key).second)
        out.push_back({std::move(facts.key), std::move(facts.compatibility), facts.size, entry.stored_bytes,
                       entry.last_used_s, entry.uses, store->directory()});
  }
  return out;
}

bool BlobSpace::erase(std::string_view key) {
  const cache::BlobName name = name_of(key);
  const cache::BlobKey made = cache::blob_key(name);
  if (shared_->has_queued()) flush(base::Deadline::after(kQueuePatience));
  const auto writable = core_.state().stores.writable();
  if (!writable) return false;
  std::vector<Key> victims;
  const cache::KeyRange range = cache::keys_of_blob(made.key);
  writable->list(range.first, range.last, [&](const cache::Entry& entry) {
    try {
      const cache::BlobFacts facts = cache::decode_blob(entry.facts);
      if (facts.space == name.space && facts.key == name.key && facts.compatibility == name.compatibility)
        victims.push_back(entry.key);
    } catch (const base::Malformed&) {
    }
  });
  const bool there = std::find(victims.begin(), victims.end(), made.key) != victims.end();
  if (!victims.empty()) writable->remove(victims, base::Deadline::after(kErasePatience));
  if (there && writable->peek_text(made.key, base::Deadline::after(kReadPatience)))
    throw Error(Errc::io, "could not delete " + subject_of(name.space, key) + " from '" +
                              writable->directory() + "': other processes kept the store busy; try again");
  return there;
}

void BlobSpace::identify(std::string_view key, std::string_view identity) {
  shared_->identify(std::string(key), base::digest_of(identity));
}

/// An opened space in the list that a forked child inherits.
struct BlobSpaces::Opened {
  Name name;
  std::unique_ptr<BlobSpace> space;
  const Opened* older;
};

BlobSpaces::~BlobSpaces() {
  for (const Opened* next = opened_; next;) delete std::exchange(next, next->older);
}

BlobSpace& BlobSpaces::open(const BlobSpaceOptions& options) {
  const std::lock_guard lock(opening_.get());
  Name name(options.space, options.compatibility, options.sealed_miss, options.behind);
  const BlobSpace* sibling = nullptr;
  for (const Opened* at = opened_; at; at = at->older) {
    if (at->name == name) return *at->space;
    if (at->space->space() == options.space && at->space->compatibility() == options.compatibility)
      sibling = at->space.get();
  }
  auto fresh = std::make_unique<BlobSpace>(core_, options, ended_, sibling);
  auto opened = std::make_unique<const Opened>(Opened{std::move(name), std::move(fresh), opened_});
  opened_ = opened.get();
  return *opened.release()->space;
}

std::vector<BlobSpace*> BlobSpaces::all() const {
  std::map<Name, BlobSpace*> in_order;
  for (const Opened* at = opened_; at; at = at->older) in_order.emplace(at->name, at->space.get());
  std::vector<BlobSpace*> out;
  std::set<const BlobCounts*> seen;  // siblings count together
  for (const auto& [name, space] : in_order)
    if (seen.insert(&space->counts()).second) out.push_back(space);
  return out;
}

}  // namespace kiln::runtime
