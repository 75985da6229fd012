// The tier's leases: one thread drives the protocol (cache/fleet/lease.hpp) for all keys of the process,
// askers wait for what it decides.
#include <pthread.h>
#include <sodium.h>

#include "base/log.hpp"
#include "base/no_signals.hpp"
#include "cache/fleet/redis/keys.hpp"
#include "cache/fleet/redis/lease_commands.hpp"
#include "cache/fleet/tier_parts.hpp"

namespace kiln::fleet {
namespace {

/// Keys in one MGET of those who wait, and bytes of its answer: mostly nil, and a few entries of those that
/// have just been published.
constexpr std::size_t kLooksAtOnce = 64;
constexpr std::uint64_t kLookReply = 2 * kMostEnvelope;
/// Of a round that does nothing but give leases back, when the process is about to leave.
constexpr auto kParting = std::chrono::milliseconds(300);

std::uint64_t random_bits() {
  std::uint64_t out;
  ::randombytes_buf(&out, sizeof out);
  return out;
}

}  // namespace

/// Gives the lease back in the process that took it.
class Tier::Impl::Held : public HeldLease {
 public:
  Held(std::shared_ptr<Impl> impl, const Key& key) : impl_(std::move(impl)), key_(key) {}
  /// From now on there is one.
  void begin(bool has_place) noexcept { begun_ = true, has_place_ = has_place; }
  ~Held() override {
    if (!begun_ || generation_ != base::process_generation()) return;
    compiled();
    impl_->end(key_);
  }
  void compiled() noexcept override {
    if (has_place_.exchange(false) && generation_ == base::process_generation()) impl_->give_place_back();
  }

 private:
  const std::shared_ptr<Impl> impl_;
  const Key key_;
  bool begun_ = false;
  std::atomic<bool> has_place_{false};
  const std::uint64_t generation_ = base::process_generation();
};

Tier::Impl::Impl(TierOptions given, std::shared_ptr<Counts> counted)
    : options(std::move(given)),
      counts(std::move(counted)),
      client({.url = options.url, .timeouts = options.timeouts, .breaker = options.breaker}) {
  policy.budget = options.budget;
  if (options.signer) options.trusted.push_back(options.signer->public_key());
}

/// REQUIRES: the mutex. False: no thread to be had.
bool Tier::Impl::start_leasing(Leasing& leasing) {
  if (!leasing.leases) {
    leasing.leases = std::make_unique<Leases>(
        policy, options.who, random_bits,
        [this, &leasing](const Key& key, const std::string& value) { return accept(leasing, key, value); });
  }
  if (leasing.running) return true;
  if (leasing.thread.joinable()) leasing.thread.join();
  try {
    const base::NoSignals inherited_by_the_thread;
    leasing.thread = std::thread([self = shared_from_this(), &leasing] { self->run_leases(leasing); });
    leasing.running = true;
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

/// On the leases' thread, under their mutex.
bool Tier::Impl::accept(Leasing& leasing, const Key& key, const std::string& value) {
  const auto found = leasing.asking.find(key);
  if (found == leasing.asking.end()) return false;
  Asking& asking = *found->second;
  auto opened = open_envelope(value, {key, asking.ask.key_text, Asked::Text::whole}, options.trusted);
  auto* entry = std::get_if<Entry>(&opened);
  if (entry && (!asking.ask.acceptable || asking.ask.acceptable(*entry))) {
    asking.entry = std::move(*entry);
    return true;
  }
  if (!std::exchange(asking.rejected, true))
    count_rejected(*counts, entry ? Rejection::bad_payload : std::get<Rejection>(opened));
  return false;
}

/// What is not asked for in a hurry takes a lease only while this process compiles less than it can: others
/// of the fleet shall take theirs. It looks again then, as others may have.
///
/// Memory may end anywhere in it: then nobody finds `asking` any more, and no lease is kept that nobody has.
Tier::Reply Tier::Impl::lease(const Ask& ask, const Fetched& first, Fault& fault) {
  Leasing& leasing = state.get().leasing;
  Reply out;
  out.absent = true;
  Asking asking{.ask = ask, .entry = {}, .decision = {}};
  asking.rejected = first.rejection.has_value();
  const auto held = std::make_shared<Held>(shared_from_this(), ask.key);
  std::set<Key> name{ask.key};
  std::unique_lock lock(leasing.mutex);
  const auto over = [&] { return leasing.stopped || asking.let_go || (ask.cancelled && *ask.cancelled); };
  // Asked for twice, by two services of one tier or while its entry is still on its way: for oneself.
  if (leasing.asking.contains(ask.key) || leasing.held.contains(ask.key)) return out;
  const bool at_once = ask.in_a_hurry || leasing.places < ask.most_leases;
  struct Entered {
    Leasing& leasing;
    std::unique_lock<std::mutex>& lock;
    Asking& asking;
    ~Entered() {
      if (!lock.owns_lock()) lock.lock();
      leasing.asking.erase(asking.ask.key);
      if (asking.has_place) --leasing.places, leasing.decided.notify_all();
    }
  };
  leasing.asking.emplace(ask.key, &asking);
  const Entered entered{leasing, lock, asking};
  leasing.decided.wait(lock, [&] { return ask.in_a_hurry || leasing.places < ask.most_leases || over(); });
  if (over() || !start_leasing(leasing)) return out;
  ++leasing.places, asking.has_place = true;
  leasing.leases->want(ask.key, base::Clock::now(), at_once ? Leases::Start::acquire : Leases::Start::look);
  leasing.work.notify_one();
  bool told = false;
  for (;;) {
    leasing.decided.wait(lock, [&] { return asking.decision || over() || (asking.waits && !told); });
    if (asking.decision || over()) break;
    told = true;
    if (!ask.on_wait) continue;
    lock.unlock();
    try {
      ask.on_wait();
    } catch (...) {  // the lease may be ours meanwhile
    }
    lock.lock();
  }
  out.waited = told;
  if (!asking.decision) {
    if (leasing.leases) leasing.leases->forget(ask.key, base::Clock::now());
    leasing.work.notify_one();
    return out;
  }
  using Why = LeaseDecision::Why;
  const Why why = asking.decision->why;
  if (why == Why::served) out.entry = std::move(asking.entry);
  if (why == Why::unanswered || why == Why::refused)
    fault = leasing.last_fault == Fault::none ? Fault::refused : leasing.last_fault;
  if (why == Why::budget || why == Why::convoy || why == Why::hopeless) ++counts->remote_wait_timeouts;
  if (why == Why::leased) ++counts->remote_leases;
  if (why == Why::leased || why == Why::unanswered) {
    leasing.held.merge(name);
    held->begin(std::exchange(asking.has_place, false));
    out.lease = held;
  }
  return out;
}

void Tier::Impl::end(const Key& key) noexcept try {
  Leasing& leasing = state.get().leasing;
  const std::lock_guard lock(leasing.mutex);
  leasing.held.erase(key);
  if (leasing.leases) leasing.leases->done(key, base::Clock::now());
  leasing.work.notify_one();
} catch (...) {  // it ends by itself
}

void Tier::Impl::give_place_back() noexcept {
  Leasing& leasing = state.get().leasing;
  const std::lock_guard lock(leasing.mutex);
  --leasing.places;
  leasing.decided.notify_all();
}

void Tier::Impl::settle(Leasing& leasing) {
  bool news = false;
  for (LeaseDecision& decision : leasing.leases->take_decisions()) {
    const auto found = leasing.asking.find(decision.key);
    if (found == leasing.asking.end()) {  // it left meanwhile
      leasing.leases->done(decision.key, base::Clock::now());
      continue;
    }
    found->second->decision = std::move(decision);
    news = true;
  }
  for (auto& [key, asking] : leasing.asking) {
    if (asking->waits || asking->decision || !leasing.leases->waits_for_another(key)) continue;
    asking->waits = news = true;
    if (std::exchange(asking->has_place, false)) --leasing.places;
  }
  const LeaseCounts now = leasing.leases->counts();
  counts->remote_waits += now.waited - leasing.counted.waited;
  counts->remote_takeovers += now.takeovers - leasing.counted.takeovers;
  counts->remote_leases_lost += now.lost - leasing.counted.lost;
  leasing.counted = now;
  if (news) leasing.decided.notify_all();
}

void Tier::Impl::run_leases(Leasing& leasing) noexcept {
  ::pthread_setname_np(::pthread_self(), "kiln-remote");
  std::unique_lock lock(leasing.mutex);
  const auto place_of = [this](std::string_view tag) { return client.place(tag); };
  for (;;) try {
      std::vector<LeaseRequest> due = leasing.leases->due(base::Clock::now());
      if (due.empty()) {
        settle(leasing);
        const auto next = leasing.leases->next();
        // A lease that cannot be given back, since the server is left alone, ends by itself.
        const bool in_vain = leasing.last_fault == Fault::breaker_open && leasing.held.empty();
        if (leasing.closing && (!next || in_vain)) break;
        if (next)
          leasing.work.wait_until(lock, *next);
        else
          leasing.work.wait(lock);
        continue;
      }
      const LeaseRound round(std::move(due), policy, place_of, kLooksAtOnce, kLookReply);
      const auto deadline = leasing.closing ? base::Deadline::after(kParting) : base::Deadline::never();
      lock.unlock();
      std::vector<Answer> answers = client.call(round.commands(), deadline);
      Fault fault = Fault::none;
      bool too_large = false;
      for (const Answer& answer : answers) {
        if (!answer) fault = answer.fault;
        too_large |= answer.fault == Fault::too_large;
      }
      std::vector<LeaseRequest> requests = round.requests();
      std::vector<LeaseAnswer> read = round.read(std::move(answers));
      if (too_large) {  // many entries at once: each look by itself
        for (std::size_t i = 0; i < requests.size(); ++i) {
          if (requests[i].kind != LeaseRequest::Kind::look) continue;
          const LeaseRound one({requests[i]}, policy, place_of, 1, kLookReply);
          read[i] = std::move(one.read(client.call(one.commands(), deadline)).front());
        }
      }
      lock.lock();
      leasing.last_fault = fault;
      for (std::size_t i = 0; i < requests.size(); ++i)
        leasing.leases->answered(requests[i], std::move(read[i]), base::Clock::now());
      settle(leasing);
    } catch (...) {  // no memory: all are let go, what is held ends by itself, and who asks next begins anew
      if (!lock.owns_lock()) lock.lock();
      for (auto& [key, asking] : leasing.asking) asking->let_go = true;
      leasing.leases.reset();
      leasing.counted = {};
      break;
    }
  leasing.running = false;
  leasing.decided.notify_all();
}

void Tier::Impl::stop() noexcept {
  Leasing& leasing = state.get().leasing;
  const std::lock_guard lock(leasing.mutex);
  leasing.stopped = true;
  leasing.decided.notify_all();
}

}  // namespace kiln::fleet
