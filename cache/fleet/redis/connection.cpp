#include "cache/fleet/redis/connection.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "cache/fleet/redis/command_bytes.hpp"

namespace kiln::fleet {
namespace {

constexpr std::uint64_t kGreetingLimit = 4096;  // bytes of an answer to AUTH or SELECT
constexpr std::size_t kReadStep = 32 << 10;
constexpr std::size_t kLongestDetail = 400;
/// A connection that read more than this gives the parser's buffer back: it may be idle for ever.
constexpr std::uint64_t kKeptBuffer = 1 << 20;

std::string milliseconds(base::Clock::duration time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time).count()) + " ms";
}

/// "WRONGPASS": what is known of an error's first word, and no more of it. Servers repeat what they do not
/// understand, and that was a password.
std::string error_code(const std::string& text) {
  for (const char* code : {"WRONGPASS", "NOAUTH", "NOPERM", "LOADING", "ERR"})
    if (text.starts_with(code)) return code;
  return "an unknown answer";
}

}  // namespace

Connection::Connection(std::vector<Address> addresses, std::unique_ptr<TlsSession> tls, const Login& login,
                       const Timeouts& timeouts)
    : addresses_(std::move(addresses)), login_(login), timeouts_(timeouts), tls_(std::move(tls)) {}

void Connection::connect_next(Time now) {
  if (next_address_ == addresses_.size()) {
    bool tls = false;
    return give_up(Fault::connect, addresses_.empty() ? "no address" : channel_.why(tls));
  }
  const auto left = static_cast<base::Clock::rep>(addresses_.size() - next_address_);
  address_until_ = now + std::max(base::Clock::duration::zero(), connect_until_ - now) / left;
  state_ = State::connecting;
  connect_result(channel_.socket().connect(addresses_[next_address_++]), now);
}

void Connection::connect_result(Io io, Time now) {
  retry_ = false;
  if (io == Io::done) return secured(now);
  if (io == Io::again) return;
  if (channel_.socket().error() == EAGAIN && addresses_[next_address_ - 1].bytes.ss_family == AF_UNIX) {
    retry_ = true;
    return;
  }
  connect_next(now);
}

void Connection::secured(Time now) {
  if (tls_) {
    channel_.secure(std::move(tls_));
    state_ = State::securing;
  }
  if (state_ == State::securing) {
    const Io io = channel_.handshake();
    if (io == Io::again) return;
    if (io != Io::done) return failed(io, "TLS handshake");
  }
  if (login_.authenticate || login_.database != 0)
    greet();
  else
    greeted(now);
}

void Connection::greet() {
  state_ = State::greeting;
  expected_ = 0;
  if (login_.authenticate) {
    std::vector<std::string> words{"AUTH", login_.password};
    if (!login_.user.empty()) words.insert(words.begin() + 1, login_.user);
    append_command(out_, words);
    ++expected_;
  }
  if (login_.database != 0) {
    append_command(out_, {"SELECT", std::to_string(login_.database)});
    ++expected_;
  }
  for (std::size_t i = 0; i < expected_; ++i) bound_.expect(kGreetingLimit);
}

void Connection::greeted(Time now) {
  for (std::size_t i = 0; i < replies_.size(); ++i) {
    if (replies_[i].kind == Reply::Kind::status) continue;
    if (replies_[i].text.starts_with("ERR max number of clients"))
      return give_up(Fault::connect, "the server has as many clients as it takes");
    const bool about_login = login_.authenticate && i == 0;
    return give_up(Fault::auth, (about_login ? "user or password refused: " : "database refused: ") +
                                    error_code(replies_[i].text));
  }
  replies_.clear();
  state_ = State::ready;
  if (!batch_.limits.empty()) begin(std::move(batch_), now);
}

void Connection::begin(Batch batch, Time now) {
  if (state_ == State::broken) return;
  batch_ = std::move(batch);
  if (state_ == State::fresh) {  // greeted() comes back here
    began_at_ = now;
    connect_until_ = now + timeouts_.connect;
    return connect_next(now);
  }
  state_ = State::exchanging;
  replies_.clear();
  out_ = std::move(batch_.bytes);
  sent_ = 0;
  expected_ = batch_.limits.size();
  for (const std::uint64_t limit : batch_.limits) bound_.expect(limit);
  batch_ = {};
  announced_before_ = bound_.announced();
  in_before_ = bytes_in_;
  asked_at_ = now;
}

void Connection::step(Time now, Time caller) {
  caller_until_ = caller;
  if (state_ == State::connecting) {
    if (retry_) {
      --next_address_;
      connect_next(now);
    } else if (channel_.socket().fd() >= 0) {
      pollfd poll{channel_.socket().fd(), POLLOUT, 0};
      if (::poll(&poll, 1, 0) > 0) connect_result(channel_.socket().connected(), now);
    }
    if (state_ == State::connecting && now >= address_until_ && now < connect_until_) connect_next(now);
  } else if (state_ == State::securing) {
    secured(now);
  }
  if (state_ == State::greeting || state_ == State::exchanging) exchange(now);
  if (finished() || now < until()) return;  // who ran out of time meanwhile is seen by the next step
  if (state_ == State::connecting)
    give_up(Fault::connect, "not connected within " + milliseconds(timeouts_.connect));
  else if (state_ == State::exchanging)
    give_up(Fault::timeout, "not answered within " + milliseconds(allowance()));
  else
    give_up(Fault::timeout, std::string(state_ == State::securing ? "no TLS" : "no login") + " within " +
                                milliseconds(timeouts_.connect) + " of connecting");
}

void Connection::exchange(Time now) {
  while (send_some() && receive_some() && in_time()) {
  }
  if (state_ == State::broken || replies_.size() < expected_) return;
  if (state_ == State::greeting) {
    out_.clear();
    sent_ = 0;
    greeted(now);
    if (state_ == State::exchanging) exchange(now);
  } else if (sent_ < out_.size()) {
    give_up(Fault::protocol, "an answer before its command was sent");
  } else {
    out_ = {};
    if (bytes_in_ - in_before_ > kKeptBuffer) reader_ = ReplyReader();
    answered_at_ = base::Clock::now();
    state_ = State::ready;
  }
}

bool Connection::send_some() {
  while (sent_ < out_.size()) {
    std::size_t moved = 0;
    const Io io = channel_.write(std::string_view(out_).substr(sent_), moved);
    if (io == Io::again) return true;
    // A server that closes may have said why: what came in is read first.
    if (io == Io::closed) {
      while (receive_some() && in_time()) {
      }
      if (replies_.size() < expected_) failed(io, "sending");
      return false;
    }
    if (io != Io::done) {
      failed(io, "sending");
      return false;
    }
    sent_ += moved;
    bytes_out_ += moved;
  }
  if (channel_.unsent()) {
    const Io io = channel_.flush();
    if (io == Io::closed || io == Io::failed) {
      failed(io, "sending");
      return false;
    }
  }
  return true;
}

/// Whether there may be more.
bool Connection::receive_some() {
  if (replies_.size() >= expected_) return false;
  char buffer[kReadStep];
  std::size_t moved = 0;
  const Io io = channel_.read(buffer, sizeof buffer, moved);
  if (io == Io::again) return false;
  if (io != Io::done) {
    failed(io, "reading");
    return false;
  }
  bytes_in_ += moved;
  const ReplyBound::Seen seen = bound_.see({buffer, moved});
  reader_.feed({buffer, seen.usable});
  take_replies();
  if (state_ == State::broken) return false;
  if (seen.verdict == ReplyBound::Verdict::too_large)
    give_up(Fault::too_large, "an answer beyond the limit");
  else if (seen.verdict == ReplyBound::Verdict::malformed)
    give_up(Fault::protocol, "an answer that is not the Redis protocol");
  return state_ != State::broken;
}

void Connection::take_replies() {
  bool fine = true;
  while (auto reply = reader_.next(fine)) {
    if (reply->text.size() > kLongestDetail && reply->kind == Reply::Kind::error)
      reply->text.resize(kLongestDetail);
    replies_.push_back(std::move(*reply));
  }
  if (!fine) give_up(Fault::protocol, "an answer that the parser refuses");
}

base::Clock::duration Connection::allowance() const noexcept {
  const std::uint64_t bytes = out_.size() + bound_.announced() - announced_before_;
  const auto seconds = static_cast<double>(bytes) / static_cast<double>(timeouts_.bytes_per_second);
  return timeouts_.read +
         std::chrono::duration_cast<base::Clock::duration>(std::chrono::duration<double>(seconds));
}

Connection::Time Connection::until() const noexcept {
  return state_ == State::exchanging ? asked_at_ + allowance() : connect_until_;
}

Connection::Want Connection::want() const noexcept {
  if (state_ == State::connecting) {
    if (retry_) return {-1, 0, std::min(connect_until_, base::Clock::now() + std::chrono::milliseconds(1))};
    return {channel_.socket().fd(), POLLOUT, std::min(address_until_, connect_until_)};
  }
  const bool sending = sent_ < out_.size() || channel_.unsent();
  return {channel_.socket().fd(), static_cast<short>(POLLIN | (sending ? POLLOUT : 0)), until()};
}

void Connection::failed(Io io, const char* doing) {
  bool tls = false;
  const std::string why = channel_.why(tls);
  if (tls && io == Io::failed)
    give_up(Fault::tls, why);
  else if (io == Io::closed)
    give_up(Fault::closed, std::string("the server closed the connection (") + doing + ')');
  else
    give_up(Fault::closed, std::string(doing) + ": " + why);
}

void Connection::give_up(Fault fault, std::string detail) noexcept {
  if (state_ == State::broken) return;
  if (state_ == State::greeting) replies_.clear();  // not the batch's
  state_ = State::broken;
  fault_ = fault;
  detail_ = std::move(detail);
}

void Connection::cut_short(Time now) {
  const Time began = state_ == State::exchanging ? asked_at_ : began_at_;
  hurried_ = 2 * (now - began) < until() - began;
  give_up(Fault::timeout, "the caller's deadline passed");
}

bool Connection::usable_again() { return state_ == State::ready && bound_.idle() && channel_.quiet(); }

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
