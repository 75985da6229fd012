// The client makes the fleet's servers one: each command goes to the server that its tag decides, and its
// answer or a fault comes back.
//
// Nothing of a server becomes an exception, and none costs more than its timeouts: connect (100 ms) and read
// (150 ms + size / 100 MB/s) for one exchange, after three failures nothing for 30 s.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/deadline.hpp"
#include "cache/fleet/net/breaker.hpp"
#include "cache/fleet/net/resolver.hpp"
#include "cache/fleet/redis/connection.hpp"
#include "cache/fleet/redis/reply.hpp"
#include "cache/fleet/redis/url.hpp"
#include "cache/fleet/server_status.hpp"

namespace kiln::fleet {

struct ClientOptions {
  Url url;
  Timeouts timeouts = {};
  BreakerPolicy breaker = {};
  int connections = 4;  ///< at most, to each server
  /// A connection that nobody used for longer is closed rather than used: balancers and address translators
  /// on the way forget it in silence, after minutes.
  base::Clock::duration idle = std::chrono::minutes(1);
  /// For tests: instead of getaddrinfo, and instead of the steady clock for breakers.
  Resolver::Lookup lookup = {};
  std::function<base::Clock::time_point()> now = {};
};

/// Thread-safe. A forked child begins anew, with no connections and no counts. Threads of its own: one for
/// each name while it is being resolved.
class Client {
 public:
  /// Does not touch the network, nor any file.
  explicit Client(const ClientOptions& options);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();

  /// An answer to each command, in order. Commands of one server go in one exchange, servers are asked at
  /// once. Until `deadline`, and not longer than the timeouts. Empty when there is no memory for the answers.
  std::vector<Answer> call(const std::vector<Command>& commands, base::Deadline deadline) noexcept;
  /// Of one command.
  Answer call(const Command& command, base::Deadline deadline) noexcept;

  /// Keys (in a cluster: whose hash tag is the command's tag; a key without braces is its own) whose tags
  /// have equal locations may stand in one command (MGET): the server, or a cluster's slot.
  std::uint32_t location(std::string_view tag) const noexcept;

  /// Of every server of the URL, in its order, then of those that a cluster named.
  std::vector<ServerStatus> status() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace kiln::fleet
