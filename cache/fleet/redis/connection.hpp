// One connection to one server: connects, secures, says who it is, then exchanges batches of commands for
// their replies.
//
// A state machine that never waits: drive() polls for several at once. Any fault is its end: the answer to a
// command that was given up would be taken for the next one's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "cache/fleet/net/channel.hpp"
#include "cache/fleet/net/dialer.hpp"
#include "cache/fleet/net/timeouts.hpp"
#include "cache/fleet/redis/exchange.hpp"

namespace kiln::fleet {

/// Who we are, the same for all servers.
struct Login {
  std::string user, password;
  bool authenticate = false;
  int database = 0;
};

/// Commands of one exchange, as bytes.
struct Batch {
  std::string bytes;
  std::vector<std::uint64_t> limits;  ///< of the replies, in order
};

/// Not thread-safe.
class Connection {
 public:
  using Time = base::Clock::time_point;

  /// Will connect to the first of `addresses` that answers. `tls` may be null.
  Connection(std::vector<Address> addresses, std::unique_ptr<TlsSession> tls, const Login& login,
             const Timeouts& timeouts);

  /// One at a time. The first begins to connect, which has its own time.
  void begin(Batch batch, Time now);
  /// As far as it goes without waiting, and not past `caller` or its own time, however fast the server
  /// speaks. Throws std::bad_alloc; then the connection is of no use.
  void step(Time now, Time caller = Time::max());
  /// The batch is answered, or a fault ended it.
  bool finished() const noexcept { return state_ == State::ready || state_ == State::broken; }
  struct Want {
    int fd;
    short events;  ///< of poll; none: only time brings it further
    Time until;
  };
  Want want() const noexcept;
  void give_up(Fault fault, std::string detail) noexcept;
  /// The caller has no more time.
  void cut_short(Time now);

  /// What ended the connection; Fault::none while nothing did.
  const Failure& failure() const noexcept { return failure_; }
  /// The fault speaks against the server, which had at least half of its time.
  bool server_failed() const noexcept { return is_failure_of_server(failure_.fault) && !hurried_; }
  /// The batch's replies, and the bytes of the whole connection.
  Exchange& traffic() noexcept { return exchange_; }
  /// Ready, and the server has neither closed it nor said anything unasked.
  bool usable_again();
  /// Of the last batch, once all its answers have come.
  base::Clock::duration round_trip() const noexcept { return times_.answered - times_.asked; }

 private:
  enum class State : std::uint8_t { fresh, connecting, securing, greeting, exchanging, ready, broken };
  void dialed(Io io, Time now);
  void secured(Time now);
  void greet();
  void greeted(Time now);
  void exchange(Time now);
  base::Clock::duration allowance() const noexcept;
  Time until() const noexcept;

  /// When what began, and until when it may take.
  struct Times {
    Time began{}, connect_until{}, asked{}, answered{};
    Time caller_until = Time::max();
  };

  Dialer dialer_;
  Login login_;
  Timeouts timeouts_;
  std::unique_ptr<TlsSession> tls_;
  State state_ = State::fresh;
  Times times_;
  Channel channel_;
  Exchange exchange_{channel_};
  Batch batch_;
  Failure failure_;
  bool hurried_ = false;
};

/// Until all have finished. At `caller`'s deadline those that have not are given up.
void drive(std::span<Connection* const> connections, base::Deadline caller);

}  // namespace kiln::fleet
