#include "runtime/blob/space_state.hpp"

#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/wire.hpp"
#include "cache/blob/blob.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {
namespace {

using namespace std::chrono_literals;

constexpr auto kTrimPatience = 2s;
constexpr auto kSavePeriod = 10s;
constexpr std::uint64_t kBudgetSteps = 64;  // looks at a budget while a process writes all of it

}  // namespace

SpaceState::SpaceState(std::string space, std::uint64_t budget) : space_(std::move(space)), budget_(budget) {}

SpaceState::~SpaceState() {
  try {
    Own& own = own_.get();
    const std::lock_guard lock(own.mutex);
    save(own, values());
  } catch (...) {  // no memory: these counts are lost
  }
}

void SpaceState::written(cache::Store& store, const cache::PutResult& result, std::uint64_t bytes) noexcept {
  counts.evictions += result.evicted;
  if (result.put != cache::Put::stored) return;
  counts.bytes_written += bytes;
  if (!result.replaced.empty()) drop_parts(store, result.replaced);
  keep_budget(store, bytes);
}

void SpaceState::ended(cache::Put put) noexcept {
  ++(!in_store(put) ? counts.puts_skipped : put == cache::Put::stored ? counts.puts : counts.puts_present);
}

bool SpaceState::is_queued(const Key& blob) {
  Own& own = own_.get();
  const std::lock_guard lock(own.mutex);
  return own.queued.contains(blob);
}

bool SpaceState::has_queued() {
  Own& own = own_.get();
  const std::lock_guard lock(own.mutex);
  return !own.queued.empty();
}

void SpaceState::queue(const Key& blob) {
  Own& own = own_.get();
  const std::lock_guard lock(own.mutex);
  ++own.queued[blob];
}

void SpaceState::unqueue(const Key& blob) noexcept {
  Own& own = own_.get();
  const std::lock_guard lock(own.mutex);
  if (const auto at = own.queued.find(blob); at != own.queued.end() && --at->second == 0)
    own.queued.erase(at);
}

void SpaceState::use(const std::string& key, const Digest& content) {
  Own& own = own_.get();
  const std::lock_guard lock(own.mutex);
  own.used[key] = content;
}

void SpaceState::identify(const std::string& key, const Digest& identity) {
  Own& own = own_.get();
  const std::lock_guard lock(own.mutex);
  if (const auto used = own.used.find(key); used != own.used.end()) used->second = identity;
}

std::map<std::string, Digest> SpaceState::used() {
  Own& own = own_.get();
  const std::lock_guard lock(own.mutex);
  return own.used;
}

bool SpaceState::is_mine(const Key& blob) {
  Own& own = own_.get();
  const std::lock_guard lock(own.mutex);
  const auto at = own.mine.find(blob);
  return at != own.mine.end() && at->second == std::this_thread::get_id();
}

std::shared_ptr<void> mark_mine(const std::shared_ptr<SpaceState>& state, const Key& key) {
  SpaceState::Own& own = state->own_.get();
  const std::lock_guard lock(own.mutex);
  if (!own.mine.emplace(key, std::this_thread::get_id()).second) return nullptr;
  return {nullptr, [state, key](void*) {
            SpaceState::Own& now = state->own_.get();  // in a forked child, this is empty
            const std::lock_guard end(now.mutex);
            now.mine.erase(key);
          }};
}

/// A budget is looked at by the first put of a process, and then each time a part of it was written. A store
/// that is smaller than the budget needs no look.
void SpaceState::keep_budget(cache::Store& store, std::uint64_t written) noexcept try {
  const std::uint64_t unseen = unseen_bytes_ += written;
  if (store.file_bytes() <= budget_ || (looked_ && unseen < budget_ / kBudgetSteps)) return;
  looked_ = true;
  unseen_bytes_ = 0;
  try {
    // A little more goes than must, so that the next puts need no look of their own.
    counts.evictions += store.trim(cache::keys_of_space(space_), budget_ - budget_ / kBudgetSteps,
                                   base::Deadline::after(kTrimPatience));
  } catch (const Error& error) {
    base::warn_once("trim " + space_, "could not keep space " + space_ + " within its " +
                                          std::to_string(budget_) + " bytes: " + error.what());
  }
} catch (...) {  // no memory for a warning
}

/// Deletes the parts of the blob that had these facts. What stays, because the store is busy, is evicted later,
/// or goes with the blob.
void SpaceState::drop_parts(cache::Store& store, const std::string& replaced) noexcept try {
  const cache::BlobFacts facts = cache::decode_blob(replaced);
  if (facts.parts == 0) return;
  std::vector<Key> keys;
  for (std::uint32_t i = 0; i < facts.parts; ++i) keys.push_back(cache::blob_part_key(facts, i).key);
  store.remove(std::move(keys), base::Deadline::after(kTrimPatience));
} catch (const std::exception&) {  // facts of another version, a damaged file, no memory
}

SpaceState::Values SpaceState::values() const noexcept {
  Values out{};
  std::size_t i = 0;
  for (const BlobCounter& counter : blob_counters()) out[i++] = counts.*counter.count;
  return out;
}

SpaceState::Values SpaceState::own_counts() {
  Own& own = own_.get();
  const std::lock_guard lock(own.mutex);
  if (base::process_generation() != generation_ && !own.counting) return {};
  Values out = values();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] -= own.inherited[i];
  return out;
}

void SpaceState::begin_call(Stores& stores) noexcept {
  if (base::process_generation() != generation_) {
    Own& own = own_.get();
    const std::lock_guard lock(own.mutex);
    if (!std::exchange(own.counting, true)) own.saved = own.inherited = values();  // the parent saves these
  }
  const auto now = base::Clock::now();
  auto due = due_.load(std::memory_order_relaxed);
  if (now < due || !due_.compare_exchange_strong(due, now + kSavePeriod)) return;
  if (due != base::Clock::time_point{}) save(stores);
}

void SpaceState::count_in(const std::string& directory) {
  Own& own = own_.get();
  const std::lock_guard lock(own.mutex);
  if (!own.tally) own.tally = tally_of_space(directory, space_);
}

void SpaceState::save(Stores& stores) noexcept try {
  Own& own = own_.get();
  const Values now = values();
  {
    const std::lock_guard lock(own.mutex);
    const bool is_child = base::process_generation() != generation_;
    if (now == own.saved || (is_child && !own.counting)) return;
  }
  if (const auto writable = stores.writable()) count_in(writable->directory());
  const std::lock_guard lock(own.mutex);
  save(own, now);
} catch (...) {  // counts are only for people, so no error comes of them
}

/// REQUIRES: its mutex is locked.
void SpaceState::save(Own& own, const Values& now) noexcept {
  if (now == own.saved || !own.tally) return;
  Values deltas{};
  for (std::size_t i = 0; i < now.size(); ++i) deltas[i] = now[i] - own.saved[i];
  if (own.tally->add(deltas)) own.saved = now;
}

}  // namespace kiln::runtime
