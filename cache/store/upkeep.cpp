#include "cache/store/upkeep.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include "cache/store/file/pieces.hpp"
#include "cache/store/file/write_transaction.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kStaleSeconds = 3600;  // a use is written when the stored one is older
constexpr auto kRefresh = 1h;                  // how often held entries are noted as used
constexpr std::size_t kUsesPerTransaction = 1024;
constexpr auto kUpkeepWait = 2s;    // for the gate
constexpr auto kTableRecheck = 1s;  // another process may have made the table by then
/// Waits when the store is closed: the thread's for the gate, and the closing caller's for the thread.
constexpr auto kClosingGateWait = 150ms, kClosingWait = 200ms;

template <class Duration>
void wait_for(std::condition_variable& change, std::unique_lock<std::mutex>& lock, Duration patience) {
#ifdef __SANITIZE_THREAD__  // TSan of gcc 12 does not know waits on the monotonic clock
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

void Upkeep::note_use(const Key& key, bool due) noexcept try {
  if (!file_->writable) return;
  const bool first = own_.get().uses.note(key);
  if (due || !first) start();
} catch (...) {  // no memory: not noted
}

bool Upkeep::may_note_recent() const noexcept {
  return file_->writable && base::Clock::now().time_since_epoch().count() >= no_recent_before_;
}

bool Upkeep::note_recent(const Moment& moment, const Key& key) noexcept {
  const bool noted = note_recent_use(*file_, moment, key);
  if (!noted) no_recent_before_ = (base::Clock::now() + kTableRecheck).time_since_epoch().count();
  return noted;
}

void Upkeep::note_held() noexcept try {
  if (!may_note_recent()) return;
  Moment now;
  std::string why;
  const auto deadline = base::Deadline::after(kUpkeepWait);
  if (read_pages(*file_, deadline, why, [&](const PageFile& pages) { now = moment_of(pages); }) !=
      Entered::yes)
    return;
  for (const Key& key : own_.get().uses.held())
    if (!note_recent(now, key)) return;
} catch (...) {  // no memory, or a damaged file: not noted
}

void Upkeep::start() noexcept try {
  if (!file_->writable) return;  // a read-only store keeps no descriptor
  Own& now = own_.get();
  if (now.running.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(now.mutex);
  if (now.running || now.stop) return;
  now.thread = std::thread([self = shared_from_this(), &now] { self->run(now); });
  now.running = true;
  for (FdPool* pool : {&file_->readers, &file_->writers, &file_->recent}) pool->keep_idle();
} catch (...) {  // no thread could be started: uses are not written
}

/// Runs one round in each interval, until the store is closed.
void Upkeep::run(Own& own) noexcept {
  ::pthread_setname_np(::pthread_self(), "kiln-store");
  std::unique_lock lock(own.mutex);
  const auto write = [&](base::Clock::duration patience) {
    lock.unlock();
    write_uses(base::Deadline::after(patience));
    lock.lock();
  };
  while (!own.stop) {
    wait_for(own.changed, lock, interval_);
    if (own.stop) break;
    write(kUpkeepWait);
    note_held();
    for (FdPool* pool : {&file_->readers, &file_->writers, &file_->recent}) pool->drop_idle();
  }
  write(kClosingGateWait);
  own.left = true;
  own.leaving.notify_all();
}

void Upkeep::stop() noexcept try {
  Own& now = own_.get();
  const bool grown_old = base::Clock::now() - now.since >= std::chrono::seconds(kStaleSeconds);
  if (grown_old && !now.uses.empty()) start();  // a use that was not due when noted may be due by now
  std::unique_lock lock(now.mutex);
  now.stop = true;
  if (!now.thread.joinable()) return;
  now.changed.notify_all();
  // A disk that hangs must not hang the caller that closes the store. The thread can be left alone, as it
  // owns what it needs.
  const auto deadline = base::Deadline::after(kClosingWait);
  while (!now.left && !deadline.passed()) wait_for(now.leaving, lock, deadline.left());
  const bool left = now.left;
  lock.unlock();
  if (left)
    now.thread.join();  // its descriptors are closed, and the uses written, before we return
  else
    now.thread.detach();
} catch (...) {
}

void Upkeep::write_uses(base::Deadline deadline) noexcept try {
  if (!file_->writable) return;
  auto used = own_.get().uses.take(kRefresh);
  if (used.empty()) return;
  std::sort(used.begin(), used.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const std::uint64_t now = now_s();

  std::string why;
  read_pages(*file_, deadline, why, [&](const PageFile& pages) {
    TreeCursor cursor(pages);
    std::erase_if(used, [&](const auto& entry) {
      const auto use = read_use(cursor, entry.first);
      return !use || !is_due(*use, now);
    });
  });
  for (std::size_t at = 0; at < used.size();) {
    std::optional<WriteTransaction> writing;
    if (WriteTransaction::enter(*file_, deadline, writing, why) != Entered::yes) return;
    const PageFile pages = writing->pages();
    PageCheck check_first(pages);
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
    if (batch.empty() || !writing->begin(cap_bytes_, deadline)) return;
    for (auto& [key, use] : batch) {
      use.tick = writing->tick();
      check("writing uses", write_use(writing->txn(), writing->dbi(), key, use));
    }
    writing->commit();
  }
} catch (...) {  // full, damaged, no gate: uses only decide what is evicted first
}

}  // namespace kiln::cache
