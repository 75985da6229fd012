// The tier's queue of what goes to the servers: one thread, in order, dropped when it does not keep up.
#include <pthread.h>

#include "base/log.hpp"
#include "base/no_signals.hpp"
#include "cache/fleet/redis/keys.hpp"
#include "cache/fleet/tier_parts.hpp"
#include "cache/fleet/toolchain_row.hpp"

namespace kiln::fleet {
namespace {

constexpr std::uint64_t kSmallReply = 4096;
constexpr auto kPushPatience = std::chrono::seconds(10);

}  // namespace

bool Tier::publish(Entry entry, About about, std::shared_ptr<HeldLease> lease, Full full) noexcept try {
  if (!can_write()) return false;
  Impl::Push push;
  push.bytes = entry.image.size() + entry.facts.size() + entry.key_text.size();
  push.entry = std::move(entry), push.about = std::move(about), push.lease = std::move(lease);
  return impl_->hand_over(std::move(push), full);
} catch (...) {
  ++impl_->counts->remote_puts_dropped;
  return false;
}

bool Tier::Impl::hand_over(Push push, Full full) noexcept try {
  Writing& writing = state.get().writing;
  std::unique_lock lock(writing.mutex);
  const auto room = [&] {
    return writing.closing || writing.entries == 0 ||
           (writing.entries < options.queue_entries && writing.bytes + push.bytes <= options.queue_bytes);
  };
  if (full == Full::wait) writing.progress.wait(lock, room);
  if (writing.closing || !room()) {
    ++counts->remote_puts_dropped;
    return false;
  }
  start_writing(writing);
  ++writing.entries, writing.bytes += push.bytes, ++writing.handed_over;
  writing.waiting.push_back(std::move(push));
  writing.work.notify_one();
  return true;
} catch (...) {  // no memory, or no thread
  ++counts->remote_puts_dropped;
  return false;
}

void Tier::Impl::start_writing(Writing& writing) {
  if (writing.running) return;
  if (writing.thread.joinable()) writing.thread.join();
  const base::NoSignals inherited_by_the_thread;
  writing.thread = std::thread([self = shared_from_this(), &writing] { self->run_writes(writing); });
  writing.running = true;
}

/// The row before the entry that it names: a row too many is a look in vain, an entry without its row is
/// hidden from slim hosts for good, as nobody writes again what is there. The lease, which is in `push`, ends
/// after both.
void Tier::Impl::write(Push& push) noexcept try {
  const auto deadline = base::Deadline::after(kPushPatience);
  const Entry& entry = push.entry;
  std::string envelope = seal_envelope(entry, options.signer.get());
  if (envelope.empty()) {
    ++counts->remote_puts_dropped;
    base::warn_once("remote too large",
                    "an entry of " + std::to_string(push.bytes) +
                        " bytes is too large for the fleet's tier, and stays on this node");
    return;
  }
  ToolchainRow row;
  row.key = entry.key, row.envelope_bytes = envelope.size(), row.toolchain = entry.toolchain;
  row.created_s = push.about.created_s, row.serves_others = push.about.serves_others;
  row.nvrtc_version = push.about.nvrtc_version;
  const std::string tag = tag_of(entry.key.specialisation);
  const std::vector<Command> commands{{{"HSET", rows_key(entry.key.specialisation), entry.key.toolchain.hex(),
                                        seal_row(row, options.signer.get())},
                                       tag,
                                       kSmallReply},
                                      {{"SET", entry_key(entry.key), std::move(envelope)}, tag, kSmallReply}};
  for (const Answer& answer : client.call(commands, deadline)) {
    if (answer) continue;
    ++counts->remote_puts_failed;
    {
      Writing& writing = state.get().writing;
      const std::lock_guard lock(writing.mutex);
      writing.last_fault = answer.fault, writing.last_detail = answer.detail;
    }
    warn(answer.fault, " takes no entries from this node: ", answer.detail);
    return;
  }
  ++counts->remote_puts;
} catch (...) {
  ++counts->remote_puts_failed;
}

void Tier::Impl::run_writes(Writing& writing) noexcept {
  ::pthread_setname_np(::pthread_self(), "kiln-push");
  std::unique_lock lock(writing.mutex);
  const auto rows_are_due = [&] {
    return writing.rows_untried > 0 ||
           (!writing.rows.empty() && !writing.closing && base::Clock::now() >= writing.again);
  };
  for (;;) {
    const auto ready = [&] { return writing.closing || !writing.waiting.empty() || rows_are_due(); };
    if (writing.rows.empty())
      writing.work.wait(lock, ready);
    else
      writing.work.wait_until(lock, writing.again, ready);
    if (writing.waiting.empty()) {
      if (rows_are_due())
        write_rows(writing, lock);
      else if (writing.closing)
        break;
      continue;
    }
    Push next = std::move(writing.waiting.front());
    writing.waiting.pop_front();
    lock.unlock();
    const std::size_t bytes = next.bytes;
    write(next);
    next = {};
    lock.lock();
    --writing.entries, writing.bytes -= bytes, ++writing.settled;
    writing.progress.notify_all();
  }
  writing.running = false;
  writing.progress.notify_all();
}

Tier::Totals Tier::totals() {
  Impl::Writing& writing = impl_->state.get().writing;
  const std::lock_guard lock(writing.mutex);
  return {impl_->counts->remote_puts, writing.last_fault, writing.last_detail};
}

bool Tier::flush(base::Deadline deadline) noexcept {
  Impl::Writing& writing = impl_->state.get().writing;
  std::unique_lock lock(writing.mutex);
  const std::uint64_t until = writing.handed_over;
  const auto done = [&] { return writing.settled >= until && writing.rows_untried == 0; };
  if (deadline.at() == base::Clock::time_point::max()) {
    writing.progress.wait(lock, done);
    return true;
  }
  return writing.progress.wait_until(lock, deadline.at(), done);
}

/// What is still to be written then is written all the same, by a thread that keeps this alive, if the
/// process lives long enough.
void Tier::Impl::leave() noexcept {
  State& own = state.get();
  const auto deadline = base::Deadline::after(options.patience);
  {
    Writing& writing = own.writing;
    std::unique_lock lock(writing.mutex);
    writing.progress.wait_until(lock, deadline.at(), [&] {
      return writing.settled == writing.handed_over && writing.rows_untried == 0;
    });
    writing.closing = true;
    writing.work.notify_all(), writing.progress.notify_all();
    const bool ended = writing.progress.wait_until(lock, deadline.at(), [&] { return !writing.running; });
    lock.unlock();
    if (writing.thread.joinable()) ended ? writing.thread.join() : writing.thread.detach();
  }
  Leasing& leasing = own.leasing;
  std::unique_lock lock(leasing.mutex);
  leasing.closing = true;
  if (leasing.leases && leasing.held.empty()) leasing.leases->abandon(base::Clock::now());
  leasing.work.notify_all();
  const bool ended = leasing.decided.wait_until(lock, deadline.at(), [&] { return !leasing.running; });
  lock.unlock();
  if (leasing.thread.joinable()) ended ? leasing.thread.join() : leasing.thread.detach();
}

}  // namespace kiln::fleet
