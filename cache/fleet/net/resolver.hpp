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

/// Thread-safe. Each name that is being resolved has a thread, which owns what it needs. The resolver may be
/// destroyed, and the process may end, while such a thread hangs. A forked child asks again.
class Resolver {
 public:
  /// Returns no address when there is no such name, or no answer. Called on a thread of its own.
  using Lookup = std::function<std::vector<Address>(const std::string& host, std::uint16_t port)>;
  using Time = base::Clock::time_point;

  /// An empty `lookup` means getaddrinfo.
  explicit Resolver(Lookup lookup = {});

  /// Returns the known addresses of a name, or none. A numeric address is not looked up. An answer is used
  /// for 30 s, and longer while the next one is being fetched. Waits for a first answer at most until
  /// `patience` after it was asked for, and not past `deadline`.
  std::vector<Address> addresses(const std::string& host, std::uint16_t port, base::Clock::duration patience,
                                 base::Deadline deadline);
  /// Begins to ask for the name, when no recent answer is known.
  void ask(const std::string& host, std::uint16_t port);
  /// Says that no server answered at the known addresses: the name may have moved.
  void doubt(const std::string& host, std::uint16_t port);

 private:
  struct State;
  struct Shared {
    Shared();
    std::shared_ptr<State> state;  // shared with the threads that ask
  };
  static void start(const std::shared_ptr<State>& state, const Lookup& lookup, const std::string& host,
                    std::uint16_t port);

  const Lookup lookup_;
  base::PerProcess<Shared> shared_;
};

}  // namespace kiln::fleet
