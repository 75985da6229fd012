#include "runtime/blob/blob_space.hpp"

#include <algorithm>
#include <ctime>
#include <set>

#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/quote.hpp"
#include "base/wire.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {
namespace {

using namespace std::chrono_literals;

constexpr auto kReadPatience = 5s;  // at the gate, for a stopped writer of another process
constexpr auto kTrimPatience = 2s;
constexpr std::uint64_t kBudgetSteps = 64;  // looks at a budget while a process writes all of it

/// For people: "triton 3f2a..., 12 KiB"; keys may be any bytes.
std::string subject_of(const std::string& space, std::string_view key) {
  return "blob " + base::quote(key, 60) + " of space " + space;
}

}  // namespace

BlobSpace::BlobSpace(Core& core, const BlobSpaceOptions& options) : core_(core), options_(options) {
  cache::check_blob_name({options.space, options.compatibility, {}});
}

cache::BlobName BlobSpace::name_of(std::string_view key) const {
  cache::BlobName name{options_.space, options_.compatibility, std::string(key)};
  cache::check_blob_name(name);
  return name;
}

BlobSpace::Found BlobSpace::get(std::string_view key) {
  const cache::BlobKey made = cache::blob_key(name_of(key));
  if (Found there = read(made)) return there;
  if (Found there = ask_tier(made, false, nullptr)) return there;
  return missed(key);
}

BlobSpace::Found BlobSpace::served(std::string&& content) {
  ++counts_.hits;
  counts_.bytes_read += content.size();
  return std::move(content);
}

/// The stores are asked in the order of every lookup. A damaged record is a miss, and another store is asked.
BlobSpace::Found BlobSpace::read(const cache::BlobKey& made) {
  for (const auto& store : core_.state().stores.asked())
    if (Found there = read_from(*store, made)) return served(std::move(*there));
  return std::nullopt;
}

BlobSpace::Found BlobSpace::read_from(cache::Store& store, const cache::BlobKey& made) try {
  const auto patience = base::Deadline::after(kReadPatience);
  const auto fetch = [&](const cache::BlobKey& wanted) {
    cache::GetResult got = store.get(wanted.key, wanted.text, patience);
    if (!got.record && got.miss == cache::Miss::damaged) ++counts_.damaged;
    return std::move(got.record);
  };
  std::optional<cache::Record> record = fetch(made);
  if (!record) return std::nullopt;
  const cache::BlobFacts facts = cache::decode_blob(record->facts);
  Found content;
  if (facts.parts == 0) {
    content = cache::piece_of(facts, std::move(record->image));
  } else if (facts.size <= cache::kLargestBlob) {
    content.emplace();
    content->reserve(static_cast<std::size_t>(facts.size));
    for (std::uint32_t i = 0; i < facts.parts; ++i) {
      std::optional<cache::Record> part = fetch(cache::blob_part_key(facts, facts.content, i));
      if (!part) return std::nullopt;  // evicted: the blob is whole or absent
      Found piece = cache::piece_of(cache::decode_blob(part->facts), std::move(part->image));
      if (!piece || content->size() + piece->size() > facts.size) return ++counts_.damaged, std::nullopt;
      *content += *piece;
    }
    if (content->size() != facts.size || base::digest_of(*content) != facts.content)
      return ++counts_.damaged, std::nullopt;
  }
  if (!content) return ++counts_.damaged, std::nullopt;
  return content;
} catch (const base::Malformed&) {
  ++counts_.damaged;  // facts of another version of kiln
  return std::nullopt;
}

/// Asks the tier for a blob of one record; a blob with parts does not go there.
BlobSpace::Found BlobSpace::ask_tier(const cache::BlobKey& made, bool may_make,
                                     std::shared_ptr<fleet::HeldLease>* lease) {
  FleetLookup& fleet = core_.path().fleet();
  if (!core_.permission().tier) return std::nullopt;
  const auto tier = fleet.tier();
  if (!tier) return std::nullopt;
  Found content;
  fleet::Tier::Reply reply =
      tier->ask({.key = made.key,
                 .key_text = made.text,
                 .acceptable =
                     [&](const cache::Record& record) {
                       try {
                         const auto facts = cache::decode_blob(record.facts);
                         std::string image = record.image;
                         if (facts.parts == 0 && cache::key_of(facts).text == record.key_text)
                           content = cache::piece_of(facts, std::move(image));
                       } catch (const base::Malformed&) {
                       }
                       return content.has_value();
                     },
                 .may_compile = may_make,
                 .in_a_hurry = true,
                 .most_leases = 64,
                 .cancelled = nullptr,
                 .on_wait = [&] { ++counts_.waits; }});
  if (lease) *lease = std::move(reply.lease);
  if (!reply.entry || !content) return std::nullopt;
  ++counts_.remote_hits;
  std::vector<cache::Record> records(1, std::move(*reply.entry));
  std::string why;
  store(records, why);
  return served(std::move(*content));
}

BlobSpace::Found BlobSpace::missed(std::string_view key) {
  ++counts_.misses;
  const Permission now = core_.permission();
  if (now.after_seal == MissAfterSeal::quiet) return std::nullopt;
  const std::string subject = subject_of(options_.space, key);
  core_.events().tell(KILN_EVENT_MISS_AFTER_SEAL, subject, {}, {});
  if (now.after_seal == MissAfterSeal::warn) {
    base::warn(subject + " was not in the cache after the seal");
    return std::nullopt;
  }
  ++counts_.sealed_misses;
  if (options_.refuse_when_sealed)
    throw Error(Errc::not_ready, "sealed: " + subject + " is in no store; make it before the seal");
  base::warn_once("sealed " + subject, subject + " is in no store, and this process is sealed");
  return std::nullopt;
}

/// Puts records in their order: the parts come first, so that a blob that is found has them.
cache::Put BlobSpace::store(std::vector<cache::Record>& records, std::string& why) {
  const auto writable = core_.state().stores.writable();
  if (!writable) {
    why = "there is no store that this process may write";
    return cache::Put::read_only;
  }
  std::uint64_t written = 0;
  cache::Put worst = cache::Put::present;
  for (const cache::Record& record : records) {
    const cache::PutResult done = writable->put(record, writable->put_wait(), cache::Existing::replaced);
    counts_.evictions += done.evicted;
    if (!done.notice.empty()) base::warn(done.notice);
    if (done.put == cache::Put::stored) {
      written += record.size();
      worst = cache::Put::stored;
    } else if (done.put != cache::Put::present) {
      why = done.detail;
      base::warn_once("put blob " + std::string(to_string(done.put)) + options_.space,
                      "could not cache a blob of space " + options_.space + " in '" + writable->directory() +
                          "': " + done.detail);
      return done.put;
    }
  }
  counts_.bytes_written += written;
  if (written > 0) keep_budget(*writable, written);
  return worst;
}

BlobSpace::Put BlobSpace::put(std::string_view key, std::string_view content,
                              std::unique_ptr<BlobLease> lease, std::string& why) {
  const cache::BlobName name = name_of(key);
  std::vector<cache::Record> records;
  cache::each_record(name, content, [&](cache::Record&& record) { records.push_back(std::move(record)); });
  const cache::Put done = store(records, why);
  const bool in_store = done == cache::Put::stored || done == cache::Put::present;
  ++(!in_store ? counts_.puts_skipped : done == cache::Put::stored ? counts_.puts : counts_.puts_present);
  if (lease && lease->host_) in_store ? lease->host_->published() : lease->host_->unpublished();
  const auto tier = core_.permission().tier ? core_.path().fleet().tier() : nullptr;
  if (tier && tier->writes() && records.size() == 1) {
    if (lease && lease->fleet_) lease->fleet_->compiled();
    tier->publish({std::move(records[0]), {}, "blobs of " + options_.space},
                  {static_cast<std::int64_t>(std::time(nullptr)), false, {}},
                  lease ? std::move(lease->fleet_) : nullptr, fleet::Tier::Full::drop);
  }
  return !in_store ? Put::skipped : done == cache::Put::stored ? Put::stored : Put::present;
}

/// A budget is looked at by the first put of a process, and then each time a part of it was written. A store
/// that is smaller than the budget needs no look.
void BlobSpace::keep_budget(cache::Store& store, std::uint64_t written) {
  const std::uint64_t budget =
      options_.budget_bytes ? options_.budget_bytes : core_.config().cache_max_bytes() / 2;
  const std::uint64_t unseen = unseen_bytes_ += written;
  if (store.file_bytes() <= budget || (looked_ && unseen < budget / kBudgetSteps)) return;
  looked_ = true;
  unseen_bytes_ = 0;
  try {
    // A little more goes than must, so that the next puts need no look of their own.
    counts_.evictions += store.trim(cache::keys_of_space(options_.space), budget - budget / kBudgetSteps,
                                    base::Deadline::after(kTrimPatience));
  } catch (const Error& error) {
    base::warn_once("trim " + options_.space, "could not keep space " + options_.space + " within its " +
                                                  std::to_string(budget) + " bytes: " + error.what());
  }
}

std::shared_ptr<void> BlobSpace::mark_mine(const Key& key) {
  const std::lock_guard lock(mutex_);
  if (!mine_.emplace(key, std::this_thread::get_id()).second) return nullptr;
  return {nullptr, [this, key](void*) {
            const std::lock_guard end(mutex_);
            mine_.erase(key);
          }};
}

BlobSpace::Leased BlobSpace::lease(std::string_view key, base::Deadline deadline) {
  const cache::BlobKey made = cache::blob_key(name_of(key));
  Leased out;
  if ((out.found = read(made))) return out;
  {
    const std::lock_guard lock(mutex_);
    const auto mine = mine_.find(made.key);
    if (mine != mine_.end() && mine->second == std::this_thread::get_id()) return out;
  }
  const std::string subject = subject_of(options_.space, key);
  std::shared_ptr<cache::Flight> host;
  try {
    if (const auto file = core_.state().stores.flight_file()) {
      auto taken = file->take(
          made.key, deadline, nullptr, [&] { ++counts_.waits; }, subject);
      host = std::move(taken.flight);
      if (taken.end == cache::FlightFile::End::timed_out) ++counts_.wait_timeouts;
      if (taken.waited && (out.found = read(made))) return out;
      if (!host) {
        missed(key);
        return out;
      }
    }
  } catch (const Error& error) {
    base::warn_once("flight", std::string(error.what()) + "; blobs are made without the lock");
  }
  std::shared_ptr<fleet::HeldLease> fleet;
  if ((out.found = ask_tier(made, true, &fleet))) return out;
  missed(key);
  if (host) host->compiling(subject);
  out.lease = std::make_unique<BlobLease>(std::move(host), std::move(fleet), mark_mine(made.key));
  return out;
}

std::vector<BlobSpace::Listed> BlobSpace::list() {
  const cache::KeyRange range = cache::keys_of_space(options_.space);
  std::vector<Listed> out;
  std::set<Key> seen;
  for (const auto& store : core_.state().stores.asked()) {
    store->list(range.first, range.last, [&](const cache::Entry& entry) {
      if (!cache::is_blob(entry.facts)) return;
      try {
        cache::BlobFacts facts = cache::decode_blob(entry.facts);
        if (facts.space != options_.space || facts.part != 0 || !seen.insert(entry.key).second) return;
        out.push_back({std::move(facts.key), std::move(facts.compatibility), facts.size, entry.stored_bytes,
                       entry.last_used_s, entry.uses, store->directory()});
      } catch (const base::Malformed&) {  // of another version of kiln
      }
    });
  }
  return out;
}

bool BlobSpace::erase(std::string_view key) {
  const cache::BlobName name = name_of(key);
  const cache::BlobKey made = cache::blob_key(name);
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
  for (const Key& victim : victims) writable->trim({victim, victim}, 0, base::Deadline::after(kTrimPatience));
  if (there && writable->peek_text(made.key, base::Deadline::after(kReadPatience)))
    throw Error(Errc::io, "could not delete " + subject_of(name.space, key) + " from '" +
                              writable->directory() + "': other processes kept the store busy; try again");
  return there;
}

BlobSpace& BlobSpaces::open(const BlobSpaceOptions& options) {
  const std::lock_guard lock(mutex_);
  auto& space = spaces_[{options.space, options.compatibility}];
  if (!space) {
    try {
      space = std::make_unique<BlobSpace>(core_, options);
    } catch (...) {
      spaces_.erase({options.space, options.compatibility});
      throw;
    }
  }
  return *space;
}

std::vector<BlobSpace*> BlobSpaces::all() {
  const std::lock_guard lock(mutex_);
  std::vector<BlobSpace*> out;
  for (const auto& [name, space] : spaces_) out.push_back(space.get());
  return out;
}

}  // namespace kiln::runtime
