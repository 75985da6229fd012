#include "cache/fleet/redis/server.hpp"

#include <algorithm>

#include "base/hash.hpp"

namespace kiln::fleet {
namespace {
constexpr std::size_t kRoundTrips = 1024;

std::uint32_t microseconds(base::Clock::duration time) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(us, 0, 0xffffffff));
}
}  // namespace

Server::Visit::Visit(Visit&& other) noexcept
    : fault(other.fault),
      detail(std::move(other.detail)),
      server_(std::exchange(other.server_, nullptr)),
      connection_(std::move(other.connection_)),
      counted_(other.counted_),
      asked_breaker_(other.asked_breaker_),
      in_before_(other.in_before_),
      out_before_(other.out_before_) {}

Server::Visit::~Visit() {
  if (server_) server_->cancel(*this);
}

Server::Server(Endpoint endpoint, std::shared_ptr<const Common> common)
    : endpoint_(std::move(endpoint)), common_(std::move(common)) {}

Server::State& Server::state() const {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  if (!state.breaker) {
    const auto now = base::Clock::now().time_since_epoch().count();
    const std::uint64_t seed =
        base::hash64(endpoint_.name) ^ base::process_generation() ^ static_cast<std::uint64_t>(now);
    state.breaker = std::make_unique<Breaker>(common_->breaker, seed);
    state.counts.name = endpoint_.name;
  }
  return state;
}

void Server::expect_visit() {
  if (endpoint_.path.empty()) common_->resolver->ask(endpoint_.host, endpoint_.port);
}

/// REQUIRES: the mutex is held.
void Server::close_idle(State& state) const noexcept {
  const auto now = base::Clock::now();
  const auto young = std::find_if(state.idle.begin(), state.idle.end(),
                                  [&](const Idle& idle) { return now - idle.since < common_->idle; });
  state.open -= static_cast<int>(young - state.idle.begin());
  state.idle.erase(state.idle.begin(), young);
}

Server::Visit Server::enter(base::Deadline caller) {
  Visit visit(*this);
  State& state = this->state();
  std::unique_lock lock(state.mutex);
  const auto refused = [&](Fault fault, std::string detail) {
    visit.fault = fault;
    visit.detail = std::move(detail);
    return std::move(visit);
  };
  const auto closed_for_us = [&] {
    return refused(Fault::breaker_open, "not asked: the server failed too often just now");
  };
  if (!state.breaker->allow(common_->now())) return closed_for_us();
  visit.asked_breaker_ = true;
  const bool probe = state.breaker->state() == Breaker::State::probing;
  const auto until =
      earlier(caller, base::Deadline::after(common_->timeouts.connect + common_->timeouts.read));
  for (;;) {
    close_idle(state);
    while (!state.idle.empty()) {
      visit.connection_ = std::move(state.idle.back().connection);
      state.idle.pop_back();
      visit.counted_ = true;
      if (visit.connection_->usable_again()) {
        visit.in_before_ = visit.connection_->traffic().bytes_in();
        visit.out_before_ = visit.connection_->traffic().bytes_out();
        return visit;
      }
      visit.connection_.reset();  // the server went, or restarted: not a fault yet
      visit.counted_ = false;
      --state.open;
    }
    if (state.open < common_->connections) break;
    const bool in_time = state.changed.wait_until(lock, until.at()) == std::cv_status::no_timeout;
    if (state.breaker->state() != Breaker::State::closed && !probe) {
      visit.asked_breaker_ = false;
      return closed_for_us();
    }
    if (!in_time && until.passed())
      return refused(Fault::timeout, "all " + std::to_string(state.open) + " connections were in use");
  }
  ++state.open;
  ++state.counts.connections;
  visit.counted_ = true;
  lock.unlock();
  make_connection(visit, caller);
  return visit;
}

void Server::make_connection(Visit& visit, base::Deadline caller) {
  const auto fail = [&](Fault fault, std::string detail) {
    visit.fault = fault;
    visit.detail = std::move(detail);
  };
  std::unique_ptr<TlsSession> tls;
  if (common_->tls) {
    std::string why;
    const auto context = common_->tls->context(why);
    if (context) tls = TlsSession::make(context, endpoint_.host);
    if (!context) return fail(Fault::tls, why);
    if (!tls) return fail(Fault::no_memory, "no memory for a TLS session");
  }
  std::vector<Address> addresses;
  if (!endpoint_.path.empty())
    addresses.push_back(Address::unix_socket(endpoint_.path));
  else
    addresses =
        common_->resolver->addresses(endpoint_.host, endpoint_.port, common_->timeouts.connect, caller);
  if (addresses.empty()) return fail(Fault::unresolved, "no address is known for the server's name");
  visit.connection_ =
      std::make_unique<Connection>(std::move(addresses), std::move(tls), common_->login, common_->timeouts);
}

void Server::cancel(Visit& visit) noexcept {
  visit.connection_.reset();
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  if (visit.counted_) --state.open;
  if (visit.asked_breaker_) state.breaker->abandoned();
  state.changed.notify_all();
}

void Server::leave(Visit visit, const std::vector<const Answer*>& answers) {
  State& state = state_.get();
  std::vector<Idle> closing;  // destroyed after the lock
  const std::lock_guard lock(state.mutex);
  ServerStatus& counts = state.counts;
  const Answer* worst = nullptr;
  bool locked_out = false, demoted = false;
  for (const Answer* answer : answers) {
    ++counts.faults[static_cast<std::size_t>(answer->fault)];
    if (!*answer) worst = answer;
    locked_out = locked_out || answer->fault == Fault::auth;
    // After a failover the name means another server, and this one keeps its connections.
    demoted = demoted || (answer->fault == Fault::refused && answer->detail.starts_with("READONLY"));
  }
  if (worst) counts.last_error = text_of(worst->fault, worst->detail);

  Connection* const connection = visit.connection_.get();
  bool failed = locked_out || is_failure_of_server(visit.fault), answered = false;
  if (visit.fault == Fault::timeout) failed = false;  // our own connections were in use
  if (connection) {
    counts.commands += answers.size();
    ++counts.exchanges;
    counts.bytes_in += connection->traffic().bytes_in() - visit.in_before_;
    counts.bytes_out += connection->traffic().bytes_out() - visit.out_before_;
    failed = failed || connection->server_failed();
    answered = connection->failure().fault == Fault::none;
    if (answered) {
      const std::uint32_t took = microseconds(connection->round_trip());
      if (state.round_trips.size() < kRoundTrips)
        state.round_trips.push_back(took);
      else
        state.round_trips[state.next_round_trip++ % kRoundTrips] = took;
    }
  }
  if (visit.asked_breaker_) {
    if (failed)
      state.breaker->failed(common_->now());
    else if (answered)
      state.breaker->succeeded();
    else
      state.breaker->abandoned();
    visit.asked_breaker_ = false;
  }
  if (failed || demoted) {
    // The idle connections may lead to the same dead server.
    closing = std::move(state.idle);
    state.idle.clear();
    state.open -= static_cast<int>(closing.size());
    if (endpoint_.path.empty()) common_->resolver->doubt(endpoint_.host, endpoint_.port);
    if (common_->tls &&
        (visit.fault == Fault::tls || (connection && connection->failure().fault == Fault::tls)))
      common_->tls->forget();
  } else if (answered) {
    state.idle.push_back({std::move(visit.connection_), base::Clock::now()});
    visit.counted_ = false;
  }
  if (visit.counted_) {
    --state.open;
    visit.counted_ = false;
  }
  visit.server_ = nullptr;
  state.changed.notify_all();
}

ServerStatus Server::status() const {
  State& state = this->state();
  const std::lock_guard lock(state.mutex);
  ServerStatus out = state.counts;
  out.breaker = state.breaker->state();
  out.times_opened = state.breaker->times_opened();
  if (out.breaker == Breaker::State::open)
    out.opens_in = std::max(
        std::chrono::milliseconds(0),
        std::chrono::duration_cast<std::chrono::milliseconds>(state.breaker->opens_until() - common_->now()));
  out.open_connections = state.open;
  std::vector<std::uint32_t> sorted = state.round_trips;
  std::sort(sorted.begin(), sorted.end());
  if (!sorted.empty()) {
    out.round_trip_p50 = std::chrono::microseconds(sorted[(sorted.size() - 1) / 2]);
    out.round_trip_p99 = std::chrono::microseconds(sorted[(sorted.size() - 1) * 99 / 100]);
  }
  return out;
}

}  // namespace kiln::fleet
