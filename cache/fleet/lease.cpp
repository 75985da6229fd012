#include "cache/fleet/lease.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/bytes.hpp"
#include "base/wire.hpp"

namespace kiln::fleet {
namespace {

using Kind = LeaseRequest::Kind;
using State = LeaseAnswer::State;
using Why = LeaseDecision::Why;

constexpr std::size_t kMostWho = 64;
/// The limit keeps sums of times from wrapping.
constexpr Span kMostBudget = std::chrono::hours(24);
/// A release is tried this often; after that the lease ends by itself.
constexpr int kPartingTries = 3;

/// Makes a text that a terminal and a log line can bear.
std::string plain(std::string text) {
  if (text.size() > kMostWho) text.resize(kMostWho);
  for (char& c : text) {
    const bool allowed = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                         c == '.' || c == '_' || c == '-' || c == ':' || c == '@';
    if (!allowed) c = '?';
  }
  return text;
}

}  // namespace

Leases::Leases(LeasePolicy policy, std::string who, std::function<std::uint64_t()> random, Accept accept)
    : policy_(policy), tokens_{plain(std::move(who)), std::move(random)}, accept_(std::move(accept)) {
  policy_.budget = std::clamp<Span>(policy_.budget, Span::zero(), kMostBudget);
}

std::string Leases::Tokens::next() {
  base::Writer bytes;
  bytes.number(random()).number(random());
  return base::bytes_of<16>(bytes.str()).hex() + ':' + who;
}

void Leases::want(const Key& key, Time now, Start start) {
  if (waits_.contains(key) || held_.contains(key)) return;
  Wait wait;
  wait.since = wait.next = now;
  const bool looked = start == Start::acquire;
  wait.ever_answered = looked;
  if (looked && !policy_.may_write) {
    waits_.emplace(key, std::move(wait));
    return decide(key, Why::read_only, now);
  }
  if (looked) wait.kind = Kind::acquire;
  waits_.emplace(key, std::move(wait));
}

/// Looks again after max(50 ms, 25 % of the time waited), jittered, and not past the budget's end.
void Leases::rest(Wait& wait, Time now) {
  const double fraction = static_cast<double>(tokens_.random() >> 11) * 0x1p-53;  // [0, 1)
  const double factor = 1 + policy_.jitter * (2 * fraction - 1);
  const auto waited = std::chrono::duration<double>(now - wait.since);
  const auto least = std::chrono::duration<double>(policy_.poll_least);
  wait.pause = std::chrono::duration_cast<Span>(std::max(least, waited * policy_.poll_share) * factor);
  wait.kind = Kind::look;
  wait.next = std::min(now + wait.pause, std::max(now, wait.since + policy_.budget));
}

/// Waits, unless too many budgets were waited for nothing before.
void Leases::wait_for_another(const Key& key, Wait& wait, Time now) {
  if (now < vain_.no_waits_until) return decide(key, Why::hopeless, now);
  wait.waited = true;
  rest(wait, now);
}

void Leases::part(const Key& key, std::string token, Time now) {
  if (!token.empty()) parting_.push_back({key, std::move(token), now});
}

void Leases::decide(const Key& key, Why why, Time now) {
  const auto found = waits_.find(key);
  Wait wait = std::move(found->second);
  waits_.erase(found);
  switch (why) {
    case Why::served:
      ++counts_.served;
      if (wait.waited) vain_.budgets = 0;
      break;
    case Why::leased:
      ++counts_.leased;
      counts_.takeovers += wait.ended > 0;
      break;
    case Why::read_only:
      ++counts_.read_only;
      break;
    case Why::unanswered:
      ++counts_.unanswered;
      break;
    case Why::refused:
      ++counts_.refused;
      break;
    case Why::budget:
      ++counts_.budget;
      // Keys that were waited for together count once, since their holder may have been busy
      // with all of them.
      if (!wait.waited || wait.since < vain_.last) break;
      vain_.last = now;
      if (++vain_.budgets < policy_.budgets) break;
      --vain_.budgets;  // after the ten minutes one more is enough
      vain_.no_waits_until = now + policy_.without_waits;
      break;
    case Why::convoy:
      ++counts_.convoy;
      break;
    case Why::hopeless:
      ++counts_.hopeless;
      break;
  }
  counts_.waited += wait.waited;
  if (why == Why::leased || (why == Why::unanswered && policy_.may_write)) {
    if (wait.token.empty()) wait.token = tokens_.next();
    held_[key] = {std::move(wait.token), now + policy_.renew_every};
  } else if (wait.may_be_ours) {
    part(key, std::move(wait.token), now);
  }
  decisions_.push_back({key, why, now - wait.since});
}

void Leases::done(const Key& key, Time now) {
  const auto found = held_.find(key);
  if (found == held_.end()) return;
  Held held = std::move(found->second);
  held_.erase(found);  // first: without memory for the rest the lease ends by itself
  counts_.lost += held.refused;
  if (!held.lost) part(key, std::move(held.token), now);
}

void Leases::forget(const Key& key, Time now) {
  const auto found = waits_.find(key);
  if (found == waits_.end()) return;
  Wait wait = std::move(found->second);
  waits_.erase(found);
  if (wait.may_be_ours) part(key, std::move(wait.token), now);
}

void Leases::abandon(Time now) {
  while (!waits_.empty()) forget(Key(waits_.begin()->first), now);
  while (!held_.empty()) done(Key(held_.begin()->first), now);
}

std::vector<LeaseRequest> Leases::due(Time now) {
  std::vector<Key> late;
  for (const auto& [key, wait] : waits_)
    // The budget counts only after a first answer, so that even a budget of zero asks once.
    if (!wait.in_flight && wait.ever_answered && wait.kind == Kind::look &&
        now >= wait.since + policy_.budget)
      late.push_back(key);
  for (const Key& key : late) decide(key, Why::budget, now);

  std::vector<LeaseRequest> out;
  bool looking = false;
  for (auto& [key, wait] : waits_) {
    if (wait.in_flight || wait.next > now) continue;
    if (wait.kind == Kind::acquire && wait.token.empty()) wait.token = tokens_.next();
    looking |= wait.kind == Kind::look;
    wait.may_be_ours |= wait.kind == Kind::acquire;
    wait.in_flight = true;
    out.push_back({wait.kind, key, wait.kind == Kind::look ? std::string() : wait.token});
  }
  // All keys go in one MGET: a key that is due soon is looked up now, and from then on the
  // keys are due together.
  if (looking) {
    for (auto& [key, wait] : waits_) {
      if (wait.in_flight || wait.kind != Kind::look || wait.next - now > wait.pause / 2) continue;
      wait.in_flight = true;
      out.push_back({Kind::look, key, {}});
    }
  }
  for (auto& [key, held] : held_) {
    if (held.in_flight || held.lost || held.next > now) continue;
    held.in_flight = true;
    out.push_back({held.kind, key, held.token});
  }
  for (Parting& parting : parting_) {
    if (parting.in_flight || parting.next > now) continue;
    parting.in_flight = true;
    out.push_back({Kind::release, parting.key, parting.token});
  }
  return out;
}

void Leases::answered(const LeaseRequest& request, const LeaseAnswer& answer, Time now) {
  if (request.kind == Kind::release) return answered_release(request, answer, now);
  if (request.kind == Kind::renew || request.kind == Kind::regain) {
    const auto held = held_.find(request.key);
    if (held != held_.end() && held->second.token == request.token)
      answered_held(held->second, request, answer, now);
    return;
  }
  const auto wait = waits_.find(request.key);
  if (wait == waits_.end() || !wait->second.in_flight) return;  // forgotten meanwhile
  wait->second.in_flight = false;
  answered_wait(wait->second, request, answer, now);
}

void Leases::Wait::see_holder(const std::string& now) {
  if (!holder.empty() && holder != now) ++ended;
  holder = now;
}

void Leases::answered_wait(Wait& wait, const LeaseRequest& request, const LeaseAnswer& answer, Time now) {
  const Key key = request.key;
  if (answer.state == State::refused && (request.kind != Kind::look || !wait.ever_answered)) {
    wait.may_be_ours = false;
    return decide(key, Why::refused, now);
  }
  if (answer.state != State::answered) {
    // A server that has never answered is not waited for. A server that goes away during a wait is waited for
    // a little, or one lost packet would make every waiter of the fleet compile.
    if (request.kind != Kind::look) ++wait.acquires_unanswered;
    if (!wait.ever_answered || ++wait.unanswered >= policy_.unanswered ||
        wait.acquires_unanswered >= policy_.unanswered)
      return decide(key, Why::unanswered, now);
    return rest(wait, now);
  }
  wait.ever_answered = true;
  wait.unanswered = 0;
  if (request.kind != Kind::look) wait.acquires_unanswered = 0;
  if (request.kind == Kind::acquire && answer.granted) wait.may_be_ours = true;
  if (answer.entry && accept_(key, *answer.entry)) return decide(key, Why::served, now);
  if (request.kind != Kind::look) {
    if (answer.granted) return decide(key, Why::leased, now);
    return wait_for_another(key, wait, now);
  }
  if (!policy_.may_write) return decide(key, Why::read_only, now);
  if (!wait.token.empty() && answer.holder == wait.token) {
    wait.kind = Kind::resume;  // our own acquire, whose answer was lost
    wait.next = now;
    return;
  }
  wait.may_be_ours = false;
  wait.see_holder(answer.holder);
  if (wait.ended >= policy_.ends_without_entry) return decide(key, Why::convoy, now);
  if (answer.holder.empty()) {
    wait.kind = Kind::acquire;
    wait.next = now;
    return;
  }
  wait_for_another(key, wait, now);
}

void Leases::answered_held(Held& held, const LeaseRequest& request, const LeaseAnswer& answer, Time now) {
  held.in_flight = false;
  if (answer.state == State::unanswered) {
    held.kind = Kind::renew;
    held.next = now + policy_.renew_every / 3;
  } else if (answer.state == State::answered && answer.granted) {
    counts_.regained += request.kind == Kind::regain;
    held.refused = false;
    held.kind = Kind::renew;
    held.next = now + policy_.renew_every;
  } else if (answer.state == State::answered && request.kind == Kind::renew) {
    held.kind = Kind::regain;  // gone, by a failover or a late renewal: perhaps nobody has it yet
    held.next = now;
  } else if (answer.state == State::refused) {
    // The server is full, loading, or no longer a master. That passes, and meanwhile the lease may go on.
    held.refused = true;
    held.next = now + policy_.renew_every / 3;
  } else {
    held.lost = true;
    held.refused = false;
    ++counts_.lost;
  }
}

void Leases::answered_release(const LeaseRequest& request, const LeaseAnswer& answer, Time now) {
  const auto parting = std::find_if(parting_.begin(), parting_.end(), [&](const Parting& one) {
    return one.in_flight && one.key == request.key && one.token == request.token;
  });
  if (parting == parting_.end()) return;
  parting->in_flight = false;
  if (answer.state == State::unanswered && ++parting->tries < kPartingTries)
    parting->next = now + policy_.renew_every / 3;
  else
    parting_.erase(parting);
}

std::vector<LeaseDecision> Leases::take_decisions() { return std::exchange(decisions_, {}); }

std::optional<Time> Leases::next() const {
  std::optional<Time> out;
  const auto at = [&](Time time) { out = out ? std::min(*out, time) : time; };
  for (const auto& [key, wait] : waits_)
    if (!wait.in_flight) at(wait.next);  // never past the budget's end
  for (const auto& [key, held] : held_)
    if (!held.in_flight && !held.lost) at(held.next);
  for (const Parting& parting : parting_)
    if (!parting.in_flight) at(parting.next);
  return out;
}

}  // namespace kiln::fleet
