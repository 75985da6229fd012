// When entries were used: noted in memory, written in batches off everybody's way.
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include "cache/store_impl.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kStaleSeconds = 3600;  // a use is written when the store's is older
constexpr auto kRefresh = 1h;                  // what a process holds is in use
constexpr std::size_t kUsesPerTransaction = 1024;
constexpr auto kUpkeepWait = 2s;  // for the gate
constexpr auto kClosingWait =
    200ms;  // for the gate and for the last uses to be written, when the store is closed

}  // namespace

void Store::Impl::note_use(const Key& key) noexcept try {
  if (file.writable && upkeep.get().uses.note(key)) start_upkeep();
} catch (...) {  // no memory: not noted
}

void Store::Impl::start_upkeep() noexcept try {
  if (!file.writable) return;  // keeps no descriptor
  Upkeep& now = upkeep.get();
  if (now.running.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(now.mutex);
  if (now.running || now.stop) return;
  std::thread([impl = shared_from_this(), &now] { keep_up(impl, now); }).detach();
  now.running = true;
} catch (...) {  // no thread to be had: uses are not written
}

/// One round in `options.upkeep`, until the store is closed.
void Store::Impl::keep_up(const std::shared_ptr<Impl>& impl, Upkeep& upkeep) noexcept {
  ::pthread_setname_np(::pthread_self(), "kiln-store");
  std::unique_lock lock(upkeep.mutex);
  while (!upkeep.stop) {
#ifdef __SANITIZE_THREAD__  // gcc 12's does not know the call that waits on the monotonic clock
    upkeep.changed.wait_until(lock, std::chrono::system_clock::now() + impl->options.upkeep);
#else
    upkeep.changed.wait_for(lock, impl->options.upkeep);
#endif
    if (upkeep.stop) break;
    lock.unlock();
    impl->write_uses(base::Deadline::after(kUpkeepWait));
    impl->file.readers.drop_idle();
    impl->file.writers.drop_idle();
    lock.lock();
  }
  lock.unlock();
  impl->write_uses(base::Deadline::after(kClosingWait));
  lock.lock();
  upkeep.done = true;
}

void Store::Impl::stop_upkeep() noexcept try {
  Upkeep& now = upkeep.get();
  {
    const std::lock_guard lock(now.mutex);
    now.stop = true;
    if (!now.running) return;
  }
  now.changed.notify_all();
  // A disk that hangs must not hang whoever closes the store: the thread owns what it needs.
  base::poll_until(base::Deadline::after(kClosingWait), [&now] {
    const std::lock_guard lock(now.mutex);
    return now.done;
  });
} catch (...) {
}

void Store::Impl::write_uses(base::Deadline deadline) noexcept try {
  if (!file.writable) return;
  auto used = upkeep.get().uses.take(kRefresh);
  std::sort(used.begin(), used.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto now = static_cast<std::uint64_t>(std::time(nullptr));
  const auto is_due = [now](const Use& use) { return use.last_s > now || now - use.last_s >= kStaleSeconds; };

  std::string why;
  reading(deadline, why, [&](const PageFile& pages) {
    TreeCursor cursor(pages);
    std::erase_if(used, [&](const auto& entry) {
      const auto use = read_use(cursor, entry.first);
      return !use || !is_due(*use);
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
      if (!use || !is_due(*use)) continue;
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
