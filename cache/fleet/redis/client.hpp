// The client makes one server of the fleet's servers: each command goes to the server that its tag decides,
// and its answer or a fault comes back.
//
// No fault of a server becomes an exception. No exchange takes longer than its timeouts: connect (100 ms) and
// read (150 ms + size / 20 MB/s; of a patient command since the server last took bytes). After three failures a server
// is not asked for 30 s.
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
  /// A connection that was idle for longer is closed and not used. Balancers and address translators on the
  /// way forget such a connection in silence, after minutes.
  base::Clock::duration idle = std::chrono::minutes(1);
  /// For tests: replacements of getaddrinfo, and of the breakers' steady clock.
  Resolver::Lookup lookup = {};
  std::function<base::Clock::time_point()> now = {};
};

/// Thread-safe. A forked child starts with no connections and no counts. Each name has a thread while
/// it is being resolved.
class Client {
 public:
  /// Touches neither the network nor a file.
  explicit Client(const ClientOptions& options);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();

  /// Returns an answer to each command, in order. Commands for one server go in one exchange, and all servers
  /// are asked at once. Ends by `deadline`, and no later than the timeouts allow. Returns no answers when
  /// there is no memory for them.
  std::vector<Answer> call(const std::vector<Command>& commands, base::Deadline deadline) noexcept;
  /// Returns the answer to one command.
  Answer call(const Command& command, base::Deadline deadline) noexcept;

  /// Keys whose tags have equal locations may stand in one command (MGET). A location is a server, or a
  /// cluster's hash slot. In a cluster the keys' hash tag must be the command's tag; a key without braces
  /// is its own tag.
  std::uint32_t location(std::string_view tag) const noexcept;

  /// The status of every server of the URL, in its order, then of the nodes that a cluster named.
  std::vector<ServerStatus> status() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace kiln::fleet
