#include "cache/fleet/push_queue.hpp"

#include <pthread.h>

#include <algorithm>

#include "base/log.hpp"
#include "base/no_signals.hpp"
#include "cache/fleet/toolchain_row.hpp"

namespace kiln::fleet {
namespace {

constexpr auto kPushPatience = std::chrono::seconds(10);
/// Limits: missed rows of one process, bytes of a row, and rows in one round.
constexpr std::size_t kMostReported = 10'000, kMostRowText = 4096, kRowsAtOnce = 64;
constexpr auto kReportPatience = std::chrono::seconds(10);
constexpr auto kReportPause = std::chrono::seconds(3);

}  // namespace

bool PushQueue::publish(PublishedRecord entry, Tier::About about, std::shared_ptr<HeldLease> lease,
                        Tier::Full full) noexcept try {
  if (!context_->options.signer) return false;
  Push push;
  push.bytes = entry.size();
  push.entry = std::move(entry), push.about = std::move(about), push.lease = std::move(lease);
  return hand_over(std::move(push), full);
} catch (...) {
  ++context_->counts->remote_puts_dropped;
  return false;
}

bool PushQueue::hand_over(Push push, Tier::Full full) noexcept try {
  Own& own = own_.get();
  std::unique_lock lock(own.mutex);
  const auto room = [&] {
    return own.closing || own.entries == 0 ||
           (own.entries < context_->options.queue_entries &&
            own.bytes + push.bytes <= context_->options.queue_bytes);
  };
  if (full == Tier::Full::wait) own.progress.wait(lock, room);
  if (own.closing || !room()) {
    ++context_->counts->remote_puts_dropped;
    return false;
  }
  start(own);
  ++own.entries, own.bytes += push.bytes, ++own.handed_over;
  own.waiting.push_back(std::move(push));
  own.work.notify_one();
  return true;
} catch (...) {  // no memory, or no thread
  ++context_->counts->remote_puts_dropped;
  return false;
}

void PushQueue::start(Own& own) {
  if (own.running) return;
  if (own.thread.joinable()) own.thread.join();
  const base::NoSignals inherited_by_the_thread;
  own.thread = std::thread([self = shared_from_this(), &own] { self->run(own); });
  own.running = true;
}

/// Writes the row before the entry that it names. A row without an entry costs a look for nothing. An entry
/// without its row would be hidden from slim hosts for good, as nobody writes again what is there. The lease
/// in `push` ends after both.
void PushQueue::write(Push& push) noexcept try {
  const auto deadline = base::Deadline::after(kPushPatience);
  const PublishedRecord& entry = push.entry;
  std::string envelope = seal_envelope(entry, context_->options.signer.get());
  if (envelope.empty()) {
    ++context_->counts->remote_puts_dropped;
    base::warn_once("remote too large",
                    "an entry of " + std::to_string(push.bytes) +
                        " bytes is too large for the fleet's tier, and stays on this node");
    return;
  }
  ToolchainRow row;
  row.key = entry.key, row.envelope_bytes = envelope.size(), row.toolchain = entry.toolchain;
  row.created_s = push.about.created_s, row.serves_others = push.about.serves_others;
  row.compiler_version = push.about.compiler_version;
  const Outcome outcome = context_->backend->put(entry.key, seal_row(row, context_->options.signer.get()),
                                                 std::move(envelope), deadline);
  if (!outcome) {
    ++context_->counts->remote_puts_failed;
    {
      Own& own = own_.get();
      const std::lock_guard lock(own.mutex);
      own.last = outcome;
    }
    context_->warn(outcome.fault, " cannot be written by this node: ", outcome.detail);
    return;
  }
  ++context_->counts->remote_puts;
} catch (...) {
  ++context_->counts->remote_puts_failed;
}

void PushQueue::run(Own& own) noexcept {
  ::pthread_setname_np(::pthread_self(), "kiln-push");
  std::unique_lock lock(own.mutex);
  const auto rows_are_due = [&] {
    return own.rows_untried > 0 || (!own.rows.empty() && !own.closing && base::Clock::now() >= own.again);
  };
  for (;;) {
    const auto ready = [&] { return own.closing || !own.waiting.empty() || rows_are_due(); };
    if (own.rows.empty())
      own.work.wait(lock, ready);
    else
      own.work.wait_until(lock, own.again, ready);
    if (own.waiting.empty()) {
      if (rows_are_due())
        write_rows(own, lock);
      else if (own.closing)
        break;
      continue;
    }
    Push next = std::move(own.waiting.front());
    own.waiting.pop_front();
    lock.unlock();
    const std::size_t bytes = next.bytes;
    write(next);
    next = {};
    lock.lock();
    --own.entries, own.bytes -= bytes, ++own.settled;
    own.progress.notify_all();
  }
  own.running = false;
  own.progress.notify_all();
}

Tier::Totals PushQueue::totals() {
  Own& own = own_.get();
  const std::lock_guard lock(own.mutex);
  return {context_->counts->remote_puts, own.last.fault, own.last.detail};
}

bool PushQueue::flush(base::Deadline deadline) noexcept {
  Own& own = own_.get();
  std::unique_lock lock(own.mutex);
  const std::uint64_t until = own.handed_over;
  const auto done = [&] { return own.settled >= until && own.rows_untried == 0; };
  if (deadline.at() == base::Clock::time_point::max()) {
    own.progress.wait(lock, done);
    return true;
  }
  return own.progress.wait_until(lock, deadline.at(), done);
}

void PushQueue::report_missing(std::string row) noexcept try {
  if (row.empty() || row.size() > kMostRowText) return;
  Own& own = own_.get();
  const std::lock_guard lock(own.mutex);
  if (own.closing || own.reported.size() >= kMostReported) return;
  const auto [kept, is_new] = own.reported.insert(std::move(row));
  if (!is_new) return;
  try {
    start(own);
    own.rows.push_back(*kept);
  } catch (...) {
    own.reported.erase(kept);  // no thread, no memory: the next miss of the row reports it again
    return;
  }
  ++own.rows_untried;
  own.work.notify_one();
} catch (...) {
}

void PushQueue::write_rows(Own& own, std::unique_lock<std::mutex>& lock) noexcept {
  bool works = true;
  while (works && !own.rows.empty()) {
    std::size_t sent = 0;
    try {
      const std::size_t most = std::min(own.rows.size(), kRowsAtOnce);
      const std::vector<std::string> some(own.rows.begin(),
                                          own.rows.begin() + static_cast<std::ptrdiff_t>(most));
      lock.unlock();
      const std::vector<Outcome> outcomes =
          context_->backend->report(some, base::Deadline::after(kReportPatience));
      for (const Outcome& outcome : outcomes) {
        works = outcome || outcome.fault == Fault::refused;  // a row that is refused once is refused for ever
        if (!works) break;
        if (outcome)
          ++context_->counts->remote_reported;
        else
          context_->warn(outcome.fault,
                         " does not store this node's reports of missing kernels: ", outcome.detail);
        ++sent;
      }
      works = works && sent == some.size();
    } catch (...) {  // no memory
      works = false;
    }
    if (!lock.owns_lock()) lock.lock();
    own.rows.erase(own.rows.begin(), own.rows.begin() + static_cast<std::ptrdiff_t>(sent));
    own.rows_untried = std::min(own.rows_untried, own.rows.size());
  }
  own.rows_untried = 0;
  own.again = base::Clock::now() + kReportPause;
  own.progress.notify_all();
}

void PushQueue::leave(base::Deadline deadline) noexcept {
  Own& own = own_.get();
  std::unique_lock lock(own.mutex);
  own.progress.wait_until(lock, deadline.at(),
                          [&] { return own.settled == own.handed_over && own.rows_untried == 0; });
  own.closing = true;
  own.work.notify_all(), own.progress.notify_all();
  const bool ended = own.progress.wait_until(lock, deadline.at(), [&] { return !own.running; });
  lock.unlock();
  if (own.thread.joinable()) ended ? own.thread.join() : own.thread.detach();
}

}  // namespace kiln::fleet
