#include "cache/fleet/lease_thread.hpp"

#include <pthread.h>

#include <cstdint>
#include <system_error>
#include <utility>

#include "base/no_signals.hpp"
#include "cache/trust/sodium.hpp"

namespace kiln::fleet {
namespace {

/// The time of a round that only gives leases back, when the process is about to end.
constexpr auto kParting = std::chrono::milliseconds(300);

constexpr auto kInterruptible = std::chrono::milliseconds(100);  // between two looks whether a wait shall end

/// The time until which a caller sleeps that waits for another node.
base::Deadline end_of_sleep(const Tier::Ask& ask) noexcept {
  return ask.interrupted ? earlier(ask.deadline, base::Deadline::after(kInterruptible)) : ask.deadline;
}

}  // namespace

/// Gives the lease back in the process that took it.
class LeaseThread::Held : public HeldLease {
 public:
  Held(std::shared_ptr<LeaseThread> thread, const Key& key) : thread_(std::move(thread)), key_(key) {}
  /// From now on there is a lease to give back.
  void begin(bool has_permit) noexcept { begun_ = true, has_permit_ = has_permit; }
  ~Held() override {
    if (!begun_ || generation_ != base::process_generation()) return;
    compiled();
    thread_->end(key_);
  }
  void compiled() noexcept override {
    if (has_permit_.exchange(false) && generation_ == base::process_generation()) thread_->give_permit_back();
  }

 private:
  const std::shared_ptr<LeaseThread> thread_;
  const Key key_;
  bool begun_ = false;
  std::atomic<bool> has_permit_{false};
  const std::uint64_t generation_ = base::process_generation();
};

LeaseThread::LeaseThread(std::shared_ptr<const TierContext> context) : context_(std::move(context)) {
  policy_.budget = context_->options.budget;
}

/// Starts the thread unless it runs; false when that failed. REQUIRES: the mutex is held.
bool LeaseThread::start(Own& own) {
  if (!own.leases) {
    own.leases = std::make_unique<Leases>(
        policy_, context_->options.who, trust::random_bits,
        [this, &own](const Key& key, const std::string& value) { return accept(own, key, value); });
  }
  if (own.running) return true;
  if (own.thread.joinable()) own.thread.join();
  try {
    const base::NoSignals inherited_by_the_thread;
    own.thread = std::thread([self = shared_from_this(), &own] { self->run(own); });
    own.running = true;
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

/// Called on the leases' thread, with their mutex held.
bool LeaseThread::accept(Own& own, const Key& key, const std::string& value) {
  const auto found = own.asking.find(key);
  if (found == own.asking.end()) return false;
  Asking& asking = *found->second;
  auto opened =
      open_envelope(value, {key, asking.ask.key_text, Asked::Text::whole}, context_->options.trusted);
  auto* entry = std::get_if<PublishedRecord>(&opened);
  if (entry && (!asking.ask.acceptable || asking.ask.acceptable(*entry))) {
    asking.entry = std::move(*entry);
    return true;
  }
  if (!std::exchange(asking.rejected, true))
    count_rejected(*context_->counts, entry ? Rejection::bad_payload : std::get<Rejection>(opened));
  return false;
}

/// A request that is not in a hurry takes a lease only while this process compiles less than it can,
/// so that other nodes take some leases, too. After such a wait it looks again, as another node may
/// have compiled the key.
///
/// Memory may run out anywhere in this function. Then nobody finds `asking` any more, and no lease is kept
/// that no caller has.
Tier::Reply LeaseThread::lease(const Tier::Ask& ask, bool rejected, Fault& fault) {
  Own& own = own_.get();
  Tier::Reply out;
  out.absent = true;
  Asking asking{.ask = ask, .entry = {}, .decision = {}};
  asking.rejected = rejected;
  const auto held = std::make_shared<Held>(shared_from_this(), ask.key);
  std::set<Key> name{ask.key};
  std::unique_lock lock(own.mutex);
  const auto over = [&] { return own.stopped || asking.let_go || (ask.cancelled && *ask.cancelled); };
  // The key is asked for twice, by two services of one tier or while its entry is still on its way. This
  // caller compiles it for itself.
  if (own.asking.contains(ask.key) || own.held.contains(ask.key)) return out;
  const bool at_once = ask.in_a_hurry || own.permits < ask.most_leases;
  struct Entered {
    Own& own;
    std::unique_lock<std::mutex>& lock;
    Asking& asking;
    ~Entered() {
      if (!lock.owns_lock()) lock.lock();
      own.asking.erase(asking.ask.key);
      if (asking.has_permit) --own.permits, own.decided.notify_all();
    }
  };
  own.asking.emplace(ask.key, &asking);
  const Entered entered{own, lock, asking};
  own.decided.wait(lock, [&] { return ask.in_a_hurry || own.permits < ask.most_leases || over(); });
  if (over() || !start(own)) return out;
  ++own.permits, asking.has_permit = true;
  own.leases->want(ask.key, base::Clock::now(), at_once ? Leases::Start::acquire : Leases::Start::look);
  own.work.notify_one();
  bool told = false, given_up = false;
  while (!given_up) {
    const base::Deadline end = asking.waits ? end_of_sleep(ask) : base::Deadline::never();
    own.decided.wait_until(lock, end.at(),
                           [&] { return asking.decision || over() || (asking.waits && !told); });
    if (asking.decision || over()) break;
    lock.unlock();
    try {
      if (!std::exchange(told, true) && ask.on_wait) ask.on_wait();
      given_up = ask.interrupted && ask.interrupted();
    } catch (...) {  // the lease may be ours meanwhile
    }
    lock.lock();
    if (ask.deadline.passed() && !given_up) {
      given_up = true;
      if (!asking.decision) ++context_->counts->remote_wait_timeouts;
    }
  }
  out.waited = told;
  if (!asking.decision) {
    if (own.leases) own.leases->forget(ask.key, base::Clock::now());
    own.work.notify_one();
    return out;
  }
  using Why = LeaseDecision::Why;
  const Why why = asking.decision->why;
  if (why == Why::served) out.entry = std::move(asking.entry);
  if (why == Why::unanswered || why == Why::refused)
    fault = own.last_fault == Fault::none ? Fault::refused : own.last_fault;
  if (why == Why::budget || why == Why::convoy || why == Why::hopeless)
    ++context_->counts->remote_wait_timeouts;
  if (why == Why::leased) ++context_->counts->remote_leases;
  if (why == Why::leased || why == Why::unanswered) {
    own.held.merge(name);
    held->begin(std::exchange(asking.has_permit, false));
    out.lease = held;
  }
  return out;
}

void LeaseThread::end(const Key& key) noexcept try {
  Own& own = own_.get();
  const std::lock_guard lock(own.mutex);
  own.held.erase(key);
  if (own.leases) own.leases->done(key, base::Clock::now());
  own.work.notify_one();
} catch (...) {  // the lease ends by itself
}

void LeaseThread::give_permit_back() noexcept {
  Own& own = own_.get();
  const std::lock_guard lock(own.mutex);
  --own.permits;
  own.decided.notify_all();
}

void LeaseThread::settle(Own& own) {
  bool news = false;
  for (const LeaseDecision& decision : own.leases->take_decisions()) {
    const auto found = own.asking.find(decision.key);
    if (found == own.asking.end()) {  // the caller left meanwhile
      own.leases->done(decision.key, base::Clock::now());
      continue;
    }
    found->second->decision = decision;
    news = true;
  }
  for (auto& [key, asking] : own.asking) {
    if (asking->waits || asking->decision || !own.leases->waits_for_another(key)) continue;
    asking->waits = news = true;
    if (std::exchange(asking->has_permit, false)) --own.permits;
  }
  const LeaseCounts now = own.leases->counts();
  context_->counts->remote_waits += now.waited - own.counted.waited;
  context_->counts->remote_takeovers += now.takeovers - own.counted.takeovers;
  context_->counts->remote_leases_lost += now.lost - own.counted.lost;
  own.counted = now;
  if (news) own.decided.notify_all();
}

void LeaseThread::run(Own& own) noexcept {
  ::pthread_setname_np(::pthread_self(), "kiln-remote");
  std::unique_lock lock(own.mutex);
  for (;;) try {
      const std::vector<LeaseRequest> due = own.leases->due(base::Clock::now());
      if (due.empty()) {
        settle(own);
        const auto next = own.leases->next();
        // A lease that cannot be given back, because the breaker is open, ends by itself.
        const bool in_vain = own.last_fault == Fault::breaker_open && own.held.empty();
        if (own.closing && (!next || in_vain)) break;
        if (next)
          own.work.wait_until(lock, *next);
        else
          own.work.wait(lock);
        continue;
      }
      const auto deadline = own.closing ? base::Deadline::after(kParting) : base::Deadline::never();
      lock.unlock();
      LeaseAnswers answered = context_->backend->lease(due, policy_, deadline);
      lock.lock();
      own.last_fault = answered.fault;
      for (std::size_t i = 0; i < due.size(); ++i)
        own.leases->answered(due[i], answered.answers[i], base::Clock::now());
      settle(own);
    } catch (...) {  // no memory: all waits end, held leases end by themselves, the next caller starts again
      if (!lock.owns_lock()) lock.lock();
      for (auto& [key, asking] : own.asking) asking->let_go = true;
      own.leases.reset();
      own.counted = {};
      break;
    }
  own.running = false;
  own.decided.notify_all();
}

void LeaseThread::stop() noexcept {
  Own& own = own_.get();
  const std::lock_guard lock(own.mutex);
  own.stopped = true;
  own.decided.notify_all();
}

void LeaseThread::leave(base::Deadline deadline) noexcept {
  Own& own = own_.get();
  std::unique_lock lock(own.mutex);
  own.closing = true;
  if (own.leases && own.held.empty()) own.leases->abandon(base::Clock::now());
  own.work.notify_all();
  const bool ended = own.decided.wait_until(lock, deadline.at(), [&] { return !own.running; });
  lock.unlock();
  if (own.thread.joinable()) ended ? own.thread.join() : own.thread.detach();
}

}  // namespace kiln::fleet
