// When entries were used: noted in memory, written in batches off everybody's way.
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include "cache/store/store_parts.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kStaleSeconds = 3600;  // a use is written when the store's is older
constexpr auto kRefresh = 1h;                  // what a process holds is in use
constexpr std::size_t kUsesPerTransaction = 1024;
constexpr auto kUpkeepWait = 2s;    // for the gate
constexpr auto kTableRecheck = 1s;  // somebody may have made the table of recent uses
/// When the store is closed: of its thread for the gate, and of who closes it for the thread.
constexpr auto kClosingGateWait = 150ms, kClosingWait = 200ms;

template <class Duration>
void wait_for(std::condition_variable& change, std::unique_lock<std::mutex>& lock, Duration patience) {
#ifdef __SANITIZE_THREAD__  // gcc 12's does not know the call that waits on the monotonic clock
  change.wait_until(lock, std::chrono::system_clock::now() + patience);
#else
  change.wait_for(lock, patience);
#endif
}

bool is_due(const Use& use, std::uint64_t now) {
  return use.last_s > now || now - use.last_s >= kStaleSeconds;
}
std::uint64_t now_s() { return static_cast<std::uint64_t>(std::time(nullptr)); }

}  // namespace

bool use_is_due(const PageFile& pages, const Key& key) {
  TreeCursor cursor(pages);
  const auto use = read_use(cursor, key);
  return use && is_due(*use, now_s());
}

void Store::Impl::note_use(const Key& key, bool due) noexcept try {
  if (!file.writable) return;
  const bool first = upkeep.get().uses.note(key);
  if (due || !first) start_upkeep();
} catch (...) {  // no memory: not noted
}

bool Store::Impl::may_note_recent() const noexcept {
  return file.writable && base::Clock::now().time_since_epoch().count() >= no_recent_before;
}

bool Store::Impl::note_recent(const Moment& moment, const Key& key) noexcept {
  const bool noted = note_recent_use(file, moment, key);
  if (!noted) no_recent_before = (base::Clock::now() + kTableRecheck).time_since_epoch().count();
  return noted;
}

void Store::Impl::note_held() noexcept try {
  if (!may_note_recent()) return;
  Moment now;
  std::string why;
  const auto deadline = base::Deadline::after(kUpkeepWait);
  if (reading(deadline, why, [&](const PageFile& pages) { now = moment_of(pages); }) != Entered::yes) return;
  for (const Key& key : upkeep.get().uses.held())
    if (!note_recent(now, key)) return;
} catch (...) {  // no memory, or a damaged file: not noted
}

void Store::Impl::start_upkeep() noexcept try {
  if (!file.writable) return;  // keeps no descriptor
  Upkeep& now = upkeep.get();
  if (now.running.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(now.mutex);
  if (now.running || now.stop) return;
  now.thread = std::thread([impl = shared_from_this(), &now] { keep_up(*impl, now); });
  now.running = true;
  for (FdPool* pool : {&file.readers, &file.writers, &file.recent}) pool->keep_idle();
} catch (...) {  // no thread to be had: uses are not written
}

/// One round in `options.upkeep`, until the store is closed.
void Store::Impl::keep_up(Impl& impl, Upkeep& upkeep) noexcept {
  ::pthread_setname_np(::pthread_self(), "kiln-store");
  std::unique_lock lock(upkeep.mutex);
  const auto write = [&](base::Clock::duration patience) {
    lock.unlock();
    impl.write_uses(base::Deadline::after(patience));
    lock.lock();
  };
  while (!upkeep.stop) {
    wait_for(upkeep.changed, lock, impl.options.upkeep);
    if (upkeep.stop) break;
    write(kUpkeepWait);
    impl.note_held();
    for (FdPool* pool : {&impl.file.readers, &impl.file.writers, &impl.file.recent}) pool->drop_idle();
  }
  write(kClosingGateWait);
  upkeep.left = true;
  upkeep.leaving.notify_all();
}

void Store::Impl::stop_upkeep() noexcept try {
  Upkeep& now = upkeep.get();
  const bool grown_old = base::Clock::now() - now.since >= std::chrono::seconds(kStaleSeconds);
  if (grown_old && !now.uses.empty()) start_upkeep();  // what was not due when it was noted may be by now
  std::unique_lock lock(now.mutex);
  now.stop = true;
  if (!now.thread.joinable()) return;
  now.changed.notify_all();
  // A disk that hangs must not hang whoever closes the store: the thread owns what it needs.
  const auto deadline = base::Deadline::after(kClosingWait);
  while (!now.left && !deadline.passed()) wait_for(now.leaving, lock, deadline.left());
  const bool left = now.left;
  lock.unlock();
  if (left)
    now.thread.join();  // what it holds goes before we return: descriptors, and the last of the uses
  else
    now.thread.detach();
} catch (...) {
}

void Store::Impl::write_uses(base::Deadline deadline) noexcept try {
  if (!file.writable) return;
  auto used = upkeep.get().uses.take(kRefresh);
  if (used.empty()) return;
  std::sort(used.begin(), used.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const std::uint64_t now = now_s();

  std::string why;
  reading(deadline, why, [&](const PageFile& pages) {
    TreeCursor cursor(pages);
    std::erase_if(used, [&](const auto& entry) {
      const auto use = read_use(cursor, entry.first);
      return !use || !is_due(*use, now);
    });
  });
  for (std::size_t at = 0; at < used.size();) {
    std::optional<Writing> writing;
    if (Writing::enter(file, deadline, writing, why) != Entered::yes) return;
    const PageFile pages = writing->pages();
    WriteCheck check_first(pages);
    TreeCursor cursor(pages);
    std::vector<std::pair<Key, Use>> batch;
    for (; at < used.size() && batch.size() < kUsesPerTransaction; ++at) {
      auto use = read_use(cursor, used[at].first);
      if (!use || !is_due(*use, now)) continue;
      check_first.insertion(use_key(used[at].first));
      use->last_s = now;
      use->count += used[at].second;
      batch.emplace_back(used[at].first, *use);
    }
    if (batch.empty() || !writing->begin(options.cap_bytes, deadline)) return;
    for (auto& [key, use] : batch) {
      use.tick = writing->tick();
      check("writing uses", write_use(writing->txn(), writing->dbi(), key, use));
    }
    writing->commit();
  }
} catch (...) {  // full, damaged, no gate: uses only tell whom to evict first
}

}  // namespace kiln::cache
