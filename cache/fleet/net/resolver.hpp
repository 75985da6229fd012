// The resolver looks names up in the background, because a dead DNS server costs getaddrinfo ten seconds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/process.hpp"
#include "cache/fleet/net/socket.hpp"

namespace kiln::fleet {

/// Thread-safe. A thread for each name that is being asked about, which owns what it needs: the resolver may
/// be destroyed, and the process may end, while one hangs. A forked child asks again.
class Resolver {
 public:
  /// None: no such name, or no answer. Called on a thread of its own.
  using Lookup = std::function<std::vector<Address>(const std::string& host, std::uint16_t port)>;
  using Time = base::Clock::time_point;

  /// Empty: getaddrinfo.
  explicit Resolver(Lookup lookup = {});

  /// What is known about a name, which numeric addresses need not be asked for; empty: nothing. An answer is
  /// used for 30 s, and longer while the next one is being fetched. Waits for a first one at most until
  /// `patience` after it was asked for, and not past `deadline`.
  std::vector<Address> addresses(const std::string& host, std::uint16_t port, base::Clock::duration patience,
                                 base::Deadline deadline);
  /// Begins to ask, when nothing is known.
  void ask(const std::string& host, std::uint16_t port);
  /// Nobody answered there: the name may have moved.
  void doubt(const std::string& host, std::uint16_t port);

 private:
  struct State;
  struct Shared {
    Shared();
    std::shared_ptr<State> state;  // the asking threads' as well
  };
  static void start(const std::shared_ptr<State>& state, const Lookup& lookup, const std::string& host,
                    std::uint16_t port);

  const Lookup lookup_;
  base::PerProcess<Shared> shared_;
};

}  // namespace kiln::fleet
