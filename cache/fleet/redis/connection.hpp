// One connection to one server. It connects, secures itself, logs in, and then exchanges batches of
// commands for their replies.
//
// It is a state machine that never waits: drive() polls for several connections at once. Any fault ends the
// connection, since a late answer to a command that was given up would be taken for the next command's.
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

/// The login, equal for all servers.
struct Login {
  std::string user, password;
  bool authenticate = false;
  int database = 0;
};

/// Commands of one exchange, as bytes.
struct Batch {
  std::string bytes;
  std::vector<std::uint64_t> limits;  ///< bytes of each reply, in order
  bool patient = false;               ///< as in Command, of all commands
};

/// Not thread-safe.
class Connection {
 public:
  using Time = base::Clock::time_point;

  /// Will connect to the first of `addresses` that answers. `tls` may be null.
  Connection(std::vector<Address> addresses, std::unique_ptr<TlsSession> tls, const Login& login,
             const Timeouts& timeouts);

  /// Begins a batch; one at a time. The first batch begins to connect, which has a time of its own.
  void begin(Batch batch, Time now);
  /// Goes on as far as possible without waiting. It stops at `caller` or at its own time, however fast the
  /// server speaks. Throws std::bad_alloc; then the connection is of no use.
  void step(Time now, Time caller = Time::max());
  /// The batch is answered, or a fault ended it.
  bool finished() const noexcept { return state_ == State::ready || state_ == State::broken; }
  struct Want {
    int fd;
    short events;  ///< for poll; 0: only time brings it further
    Time until;
  };
  Want want() const noexcept;
  void give_up(Fault fault, std::string detail) noexcept;
  /// Gives up, because the caller has no more time.
  void cut_short(Time now);

  /// The fault that ended the connection; Fault::none while nothing did.
  const Failure& failure() const noexcept { return failure_; }
  /// Returns whether the fault counts against the server, which must have had at least half of its time.
  bool server_failed() const noexcept { return is_failure_of_server(failure_.fault) && !hurried_; }
  /// The batch's replies, and the bytes of the whole connection.
  Exchange& traffic() noexcept { return exchange_; }
  /// Returns whether the connection is ready, and the server has neither closed it nor said anything unasked.
  bool usable_again();
  /// The round trip of the last batch, once all its answers have come.
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

  /// When each phase began, and until when it may take.
  struct Times {
    Time began{}, connect_until{}, asked{}, answered{};
    bool patient = false;  // as in the batch
    Time allowed_from{};   // asked, or when the server last took bytes of a patient batch
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

/// Drives all connections until they have finished. At `caller`'s deadline the unfinished ones are given up.
void drive(std::span<Connection* const> connections, base::Deadline caller);

}  // namespace kiln::fleet
