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
#include "cache/fleet/net/timeouts.hpp"
#include "cache/fleet/redis/reply.hpp"
#include "cache/fleet/redis/reply_bound.hpp"
#include "cache/fleet/redis/reply_reader.hpp"

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

  Fault fault() const noexcept { return fault_; }
  const std::string& detail() const noexcept { return detail_; }
  /// The fault speaks against the server, which had at least half of its time.
  bool server_failed() const noexcept { return is_failure_of_server(fault_) && !hurried_; }
  /// Of the batch, as far as they came, in order.
  std::vector<Reply>& replies() noexcept { return replies_; }
  /// Ready, and the server has neither closed it nor said anything unasked.
  bool usable_again();
  /// Of the last batch, once all its answers have come.
  base::Clock::duration round_trip() const noexcept { return answered_at_ - asked_at_; }
  std::uint64_t bytes_in() const noexcept { return bytes_in_; }
  std::uint64_t bytes_out() const noexcept { return bytes_out_; }

 private:
  enum class State : std::uint8_t { fresh, connecting, securing, greeting, exchanging, ready, broken };
  void connect_next(Time now);
  void connect_result(Io io, Time now);
  void secured(Time now);
  void greet();
  void exchange(Time now);
  bool send_some();
  bool receive_some();
  void take_replies();
  void greeted(Time now);
  void failed(Io io, const char* doing);
  base::Clock::duration allowance() const noexcept;
  Time until() const noexcept;
  bool in_time() const noexcept { return base::Clock::now() < std::min(until(), caller_until_); }

  std::vector<Address> addresses_;
  std::size_t next_address_ = 0;
  Login login_;
  Timeouts timeouts_;
  std::unique_ptr<TlsSession> tls_;
  State state_ = State::fresh;
  bool retry_ = false;  // a Unix socket whose queue is full
  Time began_at_{}, connect_until_{}, address_until_{}, asked_at_{}, answered_at_{};
  Time caller_until_ = Time::max();
  Channel channel_;
  ReplyBound bound_;
  ReplyReader reader_;
  std::string out_;
  std::size_t sent_ = 0, expected_ = 0;
  std::uint64_t announced_before_ = 0, in_before_ = 0;
  Batch batch_;
  std::vector<Reply> replies_;
  Fault fault_ = Fault::none;
  std::string detail_;
  bool hurried_ = false;
  std::uint64_t bytes_in_ = 0, bytes_out_ = 0;
};

/// Until all have finished. At `caller`'s deadline those that have not are given up.
void drive(std::span<Connection* const> connections, base::Deadline caller);

}  // namespace kiln::fleet
