// One server of a client, with its connections, its breaker and its counters.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/process.hpp"
#include "cache/fleet/net/resolver.hpp"
#include "cache/fleet/net/tls_files.hpp"
#include "cache/fleet/redis/connection.hpp"
#include "cache/fleet/redis/url.hpp"
#include "cache/fleet/server_status.hpp"

namespace kiln::fleet {

/// The common state of all servers of a client.
struct Common {
  Login login;
  Timeouts timeouts;
  BreakerPolicy breaker;
  int connections = 4;  ///< at most, to each server
  base::Clock::duration idle = std::chrono::minutes(1);
  std::function<base::Clock::time_point()> now;  ///< the breakers' clock
  std::unique_ptr<Resolver> resolver;
  std::unique_ptr<TlsFilesInUse> tls;  ///< null: plain
};

/// Thread-safe. A forked child starts with no connections, a closed breaker and no counts.
class Server {
 public:
  Server(Endpoint endpoint, std::shared_ptr<const Common> common);

  /// One exchange: enter(), drive() the connection, leave(). A visit that is destroyed without leave() closes
  /// its connection.
  class Visit {
   public:
    Visit(Visit&& other) noexcept;
    Visit& operator=(Visit&&) = delete;
    ~Visit();
    /// Null when the visit was not let in; `fault` then says why.
    Connection* connection() const noexcept { return connection_.get(); }
    Fault fault = Fault::none;
    std::string detail;

   private:
    friend class Server;
    explicit Visit(Server& server) noexcept : server_(&server) {}
    Server* server_;
    std::unique_ptr<Connection> connection_;
    bool counted_ = false;  // among the open connections
    bool asked_breaker_ = false;
    std::uint64_t in_before_ = 0, out_before_ = 0;
  };

  const Endpoint& endpoint() const noexcept { return endpoint_; }
  /// Begins to resolve the name.
  void expect_visit();
  /// Returns a connection for one exchange, ready or connecting. Waits while all connections are in use, at
  /// most as long as an exchange may take.
  Visit enter(base::Deadline caller);
  /// Counts an exchange after drive(), and keeps or closes its connection.
  void leave(Visit visit, const std::vector<const Answer*>& answers);

  ServerStatus status() const;

 private:
  struct Idle {
    std::unique_ptr<Connection> connection;
    base::Clock::time_point since;
  };
  struct State {
    std::mutex mutex;  // guards what follows
    std::condition_variable changed;
    std::vector<Idle> idle;  // in the order of `since`
    int open = 0;            // idle, visited or being made
    std::unique_ptr<Breaker> breaker;
    ServerStatus counts;
    std::vector<std::uint32_t> round_trips;  // us
    std::size_t next_round_trip = 0;
  };
  State& state() const;
  void close_idle(State& state) const noexcept;
  void make_connection(Visit& visit, base::Deadline caller);
  void cancel(Visit& visit) noexcept;

  const Endpoint endpoint_;
  const std::shared_ptr<const Common> common_;
  mutable base::PerProcess<State> state_;
};

}  // namespace kiln::fleet
