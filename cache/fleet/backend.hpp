// The seam of remote tiers: what the Tier asks of the servers behind a URL, and nothing else of them.
//
// A backend moves bytes. The Tier (cache/fleet/tier.hpp) decides what the bytes mean, whom to believe, who
// compiles and how long to wait, for every backend alike. cache/fleet/redis/ is one backend. Another one is a
// class derived from Backend and a row in cache/fleet/tier_url.cpp.
//
// The verbs: get (many entries), put, list (toolchains of a specialisation), lease (claim, renew, release,
// and the looks of waiters), report (a missed row), health. A fault of a server is an answer and never an
// exception, and costs no more time than BackendOptions and the deadline say. Only a lack of memory is
// thrown. Commands ask more of each server (cache/fleet/upkeep.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "cache/fleet/fault.hpp"
#include "cache/fleet/lease.hpp"
#include "cache/fleet/net/breaker.hpp"
#include "cache/fleet/net/timeouts.hpp"
#include "cache/fleet/server_status.hpp"
#include "kiln/digest.hpp"

namespace kiln::fleet {

class Upkeep;

/// How patient a backend is with its servers.
struct BackendOptions {
  Timeouts timeouts = {};
  BreakerPolicy breaker = {};
};

/// How one request ended.
struct Outcome {
  Fault fault = Fault::none;
  std::string detail{};  ///< for people; names no password
  explicit operator bool() const noexcept { return fault == Fault::none; }
};

/// The value under an entry's name. With a fault nothing is known of it.
struct Value : Outcome {
  enum class Kind : std::uint8_t {
    absent,
    bytes,
    other  ///< something is there that is no value of kiln's
  };
  Kind kind = Kind::absent;
  std::string bytes{};  ///< unverified
};

/// The rows of one specialisation: the toolchain's digest in hex, and the signed row
/// (cache/fleet/toolchain_row.hpp). Nothing in them is verified.
struct Rows : Outcome {
  std::vector<std::pair<std::string, std::string>> rows{};
};

/// The answers to a round of lease requests, one for each in its order.
struct LeaseAnswers {
  std::vector<LeaseAnswer> answers;
  Fault fault = Fault::none;  ///< the last request's that had one
};

/// Thread-safe. A forked child starts without connections and counts.
class Backend {
 public:
  using Each = std::function<void(std::size_t index, Value value)>;

  virtual ~Backend() = default;

  /// Gets many entries in few round trips. Calls `each` once for every key, in order, and holds no more
  /// values at once than the servers may send at once.
  virtual void get(std::span<const Key> keys, base::Deadline deadline, const Each& each) = 0;
  /// Writes an entry's row and then its envelope, in this order. A row without an entry costs a look for
  /// nothing, but an entry without its row stays hidden from hosts of other toolchains.
  virtual Outcome put(const Key& key, std::string row, std::string envelope, base::Deadline deadline) = 0;
  /// Lists the toolchains of many specialisations: one answer for each, in order. Fewer when memory ran out.
  virtual std::vector<Rows> list(std::span<const Digest> specialisations, base::Deadline deadline) = 0;
  /// One round of the lease protocol (cache/fleet/lease.hpp), all requests at once: claims (acquire, regain),
  /// renewals (renew, resume), releases, and looks at an entry and its lease. A claim or a resumption also
  /// reads the entry after it was decided.
  virtual LeaseAnswers lease(const std::vector<LeaseRequest>& requests, const LeasePolicy& policy,
                             base::Deadline deadline) = 0;
  /// Tells the prewarm job of rows that this node missed: one answer for each, in order. Fewer when memory
  /// ran out.
  virtual std::vector<Outcome> report(std::span<const std::string> rows, base::Deadline deadline) = 0;
  /// The state of every server, without asking any of them.
  virtual std::vector<ServerStatus> health() const = 0;
  /// For commands that look after the servers (cache/fleet/upkeep.hpp). The result belongs to the backend. A
  /// backend without servers to look after need not override this; commands then find no servers.
  virtual Upkeep& upkeep() noexcept;
};

}  // namespace kiln::fleet
