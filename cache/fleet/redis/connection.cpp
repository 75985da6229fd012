#include "cache/fleet/redis/connection.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "cache/fleet/redis/command_bytes.hpp"

namespace kiln::fleet {
namespace {

constexpr std::uint64_t kGreetingLimit = 4096;  // bytes of an answer to AUTH or SELECT

std::string milliseconds(base::Clock::duration time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time).count()) + " ms";
}

/// Returns an error's first word when it is a known one ("WRONGPASS"), and nothing more of the text. Servers
/// repeat what they do not understand, which may be a password.
std::string error_code(const std::string& text) {
  for (const char* code : {"WRONGPASS", "NOAUTH", "NOPERM", "LOADING", "ERR"})
    if (text.starts_with(code)) return code;
  return "an unknown answer";
}

}  // namespace

Connection::Connection(std::vector<Address> addresses, std::unique_ptr<TlsSession> tls, const Login& login,
                       const Timeouts& timeouts)
    : dialer_(std::move(addresses)), login_(login), timeouts_(timeouts), tls_(std::move(tls)) {}

/// Acts on how dialing went so far.
void Connection::dialed(Io io, Time now) {
  if (io == Io::done) return secured(now);
  if (io == Io::again) return;
  bool tls = false;
  give_up(Fault::connect, dialer_.has_addresses() ? channel_.why(tls) : "no address");
}

void Connection::secured(Time now) {
  if (tls_) {
    channel_.secure(std::move(tls_));
    state_ = State::securing;
  }
  if (state_ == State::securing) {
    const Io io = channel_.handshake();
    if (io == Io::again) return;
    if (io != Io::done) {
      Failure failure = failure_of(channel_, io, "TLS handshake");
      return give_up(failure.fault, std::move(failure.detail));
    }
  }
  if (login_.authenticate || login_.database != 0)
    greet();
  else
    greeted(now);
}

void Connection::greet() {
  state_ = State::greeting;
  std::string bytes;
  std::vector<std::uint64_t> limits;
  if (login_.authenticate) {
    std::vector<std::string> words{"AUTH", login_.password};
    if (!login_.user.empty()) words.insert(words.begin() + 1, login_.user);
    append_command(bytes, words);
    limits.push_back(kGreetingLimit);
  }
  if (login_.database != 0) {
    append_command(bytes, {"SELECT", std::to_string(login_.database)});
    limits.push_back(kGreetingLimit);
  }
  exchange_.begin(std::move(bytes), limits);
}

void Connection::greeted(Time now) {
  const std::vector<Reply>& replies = exchange_.replies();
  for (std::size_t i = 0; i < replies.size(); ++i) {
    if (replies[i].kind == Reply::Kind::status) continue;
    if (replies[i].text.starts_with("ERR max number of clients"))
      return give_up(Fault::connect, "the server has reached its limit of clients (maxclients)");
    const bool about_login = login_.authenticate && i == 0;
    return give_up(Fault::auth, (about_login ? "user or password refused: " : "database refused: ") +
                                    error_code(replies[i].text));
  }
  exchange_.clear();
  state_ = State::ready;
  if (!batch_.limits.empty()) begin(std::move(batch_), now);
}

void Connection::begin(Batch batch, Time now) {
  if (state_ == State::broken) return;
  batch_ = std::move(batch);
  if (state_ == State::fresh) {  // greeted() calls begin() again
    times_.began = now;
    times_.connect_until = now + timeouts_.connect;
    state_ = State::connecting;
    return dialed(dialer_.start(channel_.socket(), now, times_.connect_until), now);
  }
  state_ = State::exchanging;
  exchange_.begin(std::move(batch_.bytes), batch_.limits);
  times_.patient = batch_.patient;
  batch_ = {};
  times_.asked = times_.allowed_from = now;
}

void Connection::step(Time now, Time caller) {
  times_.caller_until = caller;
  if (state_ == State::connecting) {
    dialed(dialer_.step(channel_.socket(), now), now);
  } else if (state_ == State::securing) {
    secured(now);
  }
  if (state_ == State::greeting || state_ == State::exchanging) exchange(now);
  if (finished() || now < until()) return;  // the next step sees a time that ran out meanwhile
  if (state_ == State::connecting)
    give_up(Fault::connect, "not connected within " + milliseconds(timeouts_.connect));
  else if (state_ == State::exchanging)
    give_up(Fault::timeout, "not answered within " + milliseconds(allowance()));
  else
    give_up(Fault::timeout,
            std::string(state_ == State::securing ? "no TLS session" : "no answer to the login") +
                " within " + milliseconds(timeouts_.connect) + " of connecting");
}

void Connection::exchange(Time now) {
  const auto in_time = [this] { return base::Clock::now() < std::min(until(), times_.caller_until); };
  const std::uint64_t sent_before = exchange_.bytes_out();
  if (auto failure = exchange_.proceed(in_time)) return give_up(failure->fault, std::move(failure->detail));
  if (times_.patient && exchange_.bytes_out() != sent_before) times_.allowed_from = now;
  if (!exchange_.answered()) return;
  if (state_ == State::greeting) {
    greeted(now);
    if (state_ == State::exchanging) exchange(now);
  } else if (exchange_.sending()) {
    give_up(Fault::protocol, "the server answered before the command was sent");
  } else {
    exchange_.finish();
    times_.answered = base::Clock::now();
    state_ = State::ready;
  }
}

base::Clock::duration Connection::allowance() const noexcept {
  const auto seconds =
      static_cast<double>(exchange_.load()) / static_cast<double>(timeouts_.bytes_per_second);
  return timeouts_.read +
         std::chrono::duration_cast<base::Clock::duration>(std::chrono::duration<double>(seconds));
}

Connection::Time Connection::until() const noexcept {
  return state_ == State::exchanging ? times_.allowed_from + allowance() : times_.connect_until;
}

Connection::Want Connection::want() const noexcept {
  if (state_ == State::connecting) {
    if (!dialer_.wants_write())
      return {-1, 0, std::min(times_.connect_until, base::Clock::now() + std::chrono::milliseconds(1))};
    return {channel_.socket().fd(), POLLOUT, std::min(dialer_.until(), times_.connect_until)};
  }
  const bool sending = exchange_.sending() || channel_.unsent();
  return {channel_.socket().fd(), static_cast<short>(POLLIN | (sending ? POLLOUT : 0)), until()};
}

void Connection::give_up(Fault fault, std::string detail) noexcept {
  if (state_ == State::broken) return;
  if (state_ == State::greeting) exchange_.replies().clear();  // the login's, not the batch's
  state_ = State::broken;
  failure_.fault = fault;
  failure_.detail = std::move(detail);
}

void Connection::cut_short(Time now) {
  const Time began = state_ == State::exchanging ? times_.asked : times_.began;
  hurried_ = 2 * (now - began) < until() - began;
  give_up(Fault::timeout, "the caller's deadline passed");
}

bool Connection::usable_again() { return state_ == State::ready && exchange_.idle() && channel_.quiet(); }

void drive(std::span<Connection* const> connections, base::Deadline caller) {
  std::vector<pollfd> polls;
  for (;;) {
    const auto now = base::Clock::now();
    const bool late = caller.passed();
    auto until = caller.at();
    polls.clear();
    for (Connection* connection : connections) {
      if (!connection->finished()) connection->step(now, caller.at());
      if (connection->finished()) continue;
      if (late) {
        connection->cut_short(now);
        continue;
      }
      const Connection::Want want = connection->want();
      until = std::min(until, want.until);
      polls.push_back({want.fd, want.events, 0});
    }
    if (polls.empty()) return;
    const auto left =
        std::max<base::Clock::duration>(base::Clock::duration::zero(), until - base::Clock::now());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec time{static_cast<time_t>(std::min<std::int64_t>(seconds.count(), 3600)),
                        static_cast<long>(std::chrono::nanoseconds(left - seconds).count())};
    ::ppoll(polls.data(), polls.size(), &time, nullptr);  // EINTR, too: look again
  }
}

}  // namespace kiln::fleet
