#include "runtime/path/publisher.hpp"

#include <pthread.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "base/no_signals.hpp"

namespace kiln::runtime {
namespace {

Counters::Count& skipped(Counters& counters, cache::Put put) noexcept {
  switch (put) {
    case cache::Put::read_only:
      return counters.skipped_read_only;
    case cache::Put::gate_timeout:
      return counters.skipped_gate_timeout;
    case cache::Put::full:
      return counters.skipped_full;
    default:
      return counters.skipped_failed;
  }
}

void warn_skipped(const std::string& topic, const Publication& p, const std::string& why) noexcept try {
  base::warn_once("put " + topic,
                  "could not cache " + p.subject + " in '" + p.store->directory() + "': " + why);
} catch (...) {  // no memory for a warning
}

/// Tells the board how the flight ended, and then releases the lock.
void settle(Publication& p, bool in_store) noexcept {
  if (p.flight && in_store) p.flight->published();
  if (p.flight && !in_store) p.flight->unpublished();
  p.flight.reset();
}

/// True for two records that may go into one transaction.
bool goes_with(const Publication& a, const Publication& b) noexcept {
  return a.store == b.store && a.existing == b.existing;
}

/// A record that has waited longer than this for its put gives up its flight's lock, so that waiting
/// processes go on.
constexpr auto kFlightPatience = std::chrono::seconds(2);

/// The size of one transaction. Waiting records go into few transactions, because a fresh node fetches faster
/// than a disk syncs.
constexpr std::size_t kBatchBytes = std::size_t{16} << 20;

/// Reports and counts a put that has ended. True when the record is in the store.
bool ended(Publication& p, Counters& counters, const cache::PutResult& result) noexcept {
  const bool in_store = result.put == cache::Put::stored || result.put == cache::Put::present;
  counters.evictions += result.evicted;
  if (result.evicted > 0 && p.events)
    p.events->tell(KILN_EVENT_EVICTED, p.subject, std::string(), Events::Fields{.count = result.evicted});
  if (!in_store)
    warn_skipped(std::string(to_string(result.put)), p,
                 result.detail + (result.notice.empty() ? "" : "; " + result.notice));
  else if (!result.notice.empty())
    base::warn(result.notice);
  settle(p, in_store);
  // Counted last: a reader of the count may look for the record and for the lock.
  if (p.counted)
    p.counted(result);
  else if (in_store)
    ++(result.put == cache::Put::stored ? counters.puts : counters.puts_present);
  else
    ++skipped(counters, result.put);
  if (p.afterwards) p.afterwards(std::move(p.record));
  return in_store;
}

/// Puts one record. True when it landed.
bool put(Publication& p, Counters& counters, bool last_landed) noexcept {
  if (p.flight && base::Clock::now() - p.handed_over > kFlightPatience) settle(p, false);
  return ended(
      p, counters,
      p.store->put(p.record, last_landed ? p.store->put_wait() : cache::kPutWaitAfterTimeout, p.existing));
}

/// Puts records of one store together. True when the last one landed.
bool put_together(std::vector<Publication>& all, Counters& counters) noexcept try {
  std::vector<cache::Record> records;
  records.reserve(all.size());
  for (Publication& p : all)
    if (p.flight && base::Clock::now() - p.handed_over > kFlightPatience) settle(p, false);
  for (Publication& p : all) records.push_back(std::move(p.record));
  const auto results = all.front().store->put_many(records, all.front().existing);
  bool landed = true;
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].record = std::move(records[i]);
    landed = ended(all[i], counters, results[i]);
  }
  return landed;
} catch (...) {  // no memory: nothing is stored, and other processes are not told that it is
  counters.skipped_failed += all.size();
  return false;
}

}  // namespace

/// Owned by the publisher and by its thread. The queue outlives the publisher when a put hangs.
struct Publisher::Queue {
  std::mutex mutex;
  std::condition_variable work, progress;
  std::deque<Publication> waiting;
  std::size_t entries = 0, bytes = 0;          // including records that are being put
  std::uint64_t handed_over = 0, settled = 0;  // counted in order, by one thread
  bool closing = false;
  std::thread thread;

  bool has_room(std::size_t size, const Limits& limits) const {
    return entries == 0 || (entries < limits.entries && bytes + size <= limits.bytes);
  }
  /// Waits on `progress`; false when the deadline passed first.
  template <class Ready>
  bool wait(std::unique_lock<std::mutex>& lock, base::Deadline deadline, Ready&& ready) {
    if (deadline.at() != base::Clock::time_point::max())
      return progress.wait_until(lock, deadline.at(), ready);
    progress.wait(lock, ready);
    return true;
  }
  void run(Counters& counters);
};

void Publisher::Queue::run(Counters& counters) {
  ::pthread_setname_np(::pthread_self(), "kiln-publish");
  std::unique_lock lock(mutex);
  for (bool landed = true;;) {
    work.wait(lock, [this] { return closing || !waiting.empty(); });
    if (waiting.empty()) return;
    std::vector<Publication> next;
    std::size_t size = 0;
    // While puts do not land, records go one by one, so that later ones wait less.
    while (!waiting.empty() && (next.empty() || (landed && goes_with(waiting.front(), next.front()) &&
                                                 size + waiting.front().record.size() <= kBatchBytes))) {
      size += waiting.front().record.size();
      next.push_back(std::move(waiting.front()));
      waiting.pop_front();
    }
    const std::size_t count = next.size();
    lock.unlock();
    landed = count == 1 ? put(next.front(), counters, landed) : put_together(next, counters);
    next.clear();
    lock.lock();
    entries -= count, bytes -= size, settled += count;
    progress.notify_all();
  }
}

Publisher::Shared::Shared() : queue(std::make_shared<Queue>()) {}

Publisher::Publisher(std::shared_ptr<Counters> counters, Limits limits)
    : counters_(std::move(counters)), limits_(limits) {}

Publisher::~Publisher() {
  const std::shared_ptr<Queue> queue = shared_.get().queue;
  std::unique_lock lock(queue->mutex);
  const bool empty = queue->wait(lock, base::Deadline::after(limits_.patience),
                                 [&] { return queue->settled == queue->handed_over; });
  queue->closing = true;
  queue->work.notify_all();
  lock.unlock();
  if (!queue->thread.joinable()) return;
  if (empty)
    queue->thread.join();
  else
    queue->thread.detach();
}

void Publisher::hand_over(Publication publication, WhenFull when_full) noexcept try {
  const std::shared_ptr<Queue> queue = shared_.get().queue;
  const std::size_t size = publication.record.size();
  std::unique_lock lock(queue->mutex);
  const auto room = [&] { return queue->has_room(size, limits_); };
  if (when_full == WhenFull::wait) queue->wait(lock, base::Deadline::never(), room);
  if (!room()) {
    lock.unlock();
    warn_skipped("queue full", publication, "records are compiled faster than they can be stored there");
    settle(publication, false);
    ++counters_->skipped_queue_full;
    if (publication.afterwards) publication.afterwards(std::move(publication.record));
    return;
  }
  if (!queue->thread.joinable()) {
    try {
      const base::NoSignals inherited_by_the_thread;
      queue->thread = std::thread([queue, counters = counters_] { queue->run(*counters); });
    } catch (const std::system_error&) {  // no thread could be started: put in this one
      lock.unlock();
      put(publication, *counters_, true);
      return;
    }
  }
  queue->waiting.push_back(std::move(publication));
  ++queue->entries, queue->bytes += size, ++queue->handed_over;
  queue->work.notify_one();
} catch (...) {  // no memory for the queue: the flight ends without a record
  ++counters_->skipped_failed;
}

bool Publisher::flush(base::Deadline deadline) {
  const std::shared_ptr<Queue> queue = shared_.get().queue;
  std::unique_lock lock(queue->mutex);
  const std::uint64_t until = queue->handed_over;
  return queue->wait(lock, deadline, [&] { return queue->settled >= until; });
}

}  // namespace kiln::runtime
