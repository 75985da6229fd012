// The lease protocol makes one compile per fleet: the server holds a lease on the key, and the other nodes
// wait for what the lease's holder publishes.
//
// The protocol, for one key:
//
//     look      MGET entry lease      an entry that verifies is served; no entry and no lease: acquire;
//                                     another's lease: look again after max(50 ms, 25 % of the time waited)
//     acquire   SET lease token NX PX 10 s, then GET entry in the same pipeline, so that an entry is seen
//               that a holder published before it released; still no entry: compile
//     renew     every 3 s, by a compare in Lua; a lease that was lost is asked for once more
//     release   by a compare in Lua, after the entry was put or given up
//
// A plain PEXPIRE, SET XX or DEL that arrives late would extend, overwrite or end another's lease, so none is
// ever sent. An acquire whose answer was lost is found again by its token.
//
// A node compiles without a lease when it
// - has waited past the budget,
// - was not answered at the very first request, or three times in a row (acquires are counted apart, since a
//   server in a failover answers looks and no acquire),
// - was refused, or
// - has seen two leases end without an entry.
//
// A node that has waited for three whole budgets in a row without an entry waits for nobody for ten minutes.
// So every key is decided, whatever the server does. A server that shows leases for ever costs three budgets,
// not one for each key. Nothing here is needed for correctness: each fault costs at most a further compile.
//
// There is no I/O, no clock and no thread here. The tier's thread asks `due` what to send, sends it
// (cache/fleet/redis/lease_commands.hpp) and gives the answers back. tests/fleet/simulation.hpp drives this
// very code in virtual time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "kiln/digest.hpp"

namespace kiln::fleet {

using Time = base::Clock::time_point;  ///< steady: no setting of a node's clock reaches the protocol
using Span = base::Clock::duration;

struct LeasePolicy {
  Span lease = std::chrono::seconds(10), renew_every = std::chrono::seconds(3);
  Span poll_least = std::chrono::milliseconds(50);
  double poll_share = 0.25;  ///< of the time waited so far
  double jitter = 0.2;       ///< of a pause, up and down
  Span budget = std::chrono::seconds(60);
  int unanswered = 3;          ///< requests in a row
  int ends_without_entry = 2;  ///< leases seen to end
  int budgets = 3;             ///< budgets in a row in which nothing was served
  Span without_waits = std::chrono::minutes(10);
  bool may_write = true;  ///< false: look once, and compile what is not there
};

struct LeaseRequest {
  enum class Kind : std::uint8_t { look, acquire, resume, renew, regain, release };
  Kind kind = Kind::look;
  Key key;
  std::string token;  ///< empty for a look
};

struct LeaseAnswer {
  /// `unanswered`: it is not known whether the server did it. `refused`: the server said that it did not.
  enum class State : std::uint8_t { answered, unanswered, refused } state = State::unanswered;
  /// For look, acquire, resume: the value under the entry's name, unverified.
  std::optional<std::string> entry;
  std::string holder;    ///< for look: the token of the lease, unverified; empty when there is none
  bool granted = false;  ///< for the others: the lease is ours (release: was ours)
};

/// The decision on a wanted key.
struct LeaseDecision {
  enum class Why : std::uint8_t {
    served,      ///< an entry was accepted; all others mean: compile
    leased,      ///< the lease is ours: `done` must follow
    read_only,   ///< not there, and this node does not lease
    unanswered,  ///< `done` must follow: when the server comes back, the lease is taken for this compile
    refused,     ///< the server takes no lease from us
    budget,      ///< waited long enough
    convoy,      ///< holders end without an entry: waiting for the next one would not end
    hopeless,    ///< another node has it, and whole budgets were waited for nothing before
  };
  Key key;
  Why why = Why::served;
  Span waited{};
};

struct LeaseCounts {
  std::uint64_t served = 0, leased = 0, read_only = 0, unanswered = 0, refused = 0, budget = 0, convoy = 0,
                hopeless = 0;
  std::uint64_t waited = 0;     ///< keys for which another's lease was waited for
  std::uint64_t takeovers = 0;  ///< leases got after another's was seen to end without an entry
  std::uint64_t lost = 0, regained = 0;
};

/// All keys that this process waits for or compiles under a lease. Not thread-safe.
class Leases {
 public:
  /// Returns true when the server's value is a verified entry of the key; the callee then keeps it.
  using Accept = std::function<bool(const Key&, const std::string&)>;
  enum class Start : std::uint8_t { look, acquire };

  /// `who` names this process to people. `random` gives 64 bits that differ from process to process.
  Leases(LeasePolicy policy, std::string who, std::function<std::uint64_t()> random, Accept accept);

  /// Asks for the key from now on. `acquire` means that the caller has just looked, and found nothing.
  /// Nothing happens when the key is wanted or held already.
  void want(const Key& key, Time now, Start start = Start::look);
  /// Says that the compile that a decision asked for has ended. Its entry was put before this call,
  /// or not at all.
  void done(const Key& key, Time now);
  /// Says that nobody wants the key any more.
  void forget(const Key& key, Time now);
  /// Gives everything back as well as possible, because the process is about to end.
  void abandon(Time now);

  /// Returns the requests that are to be sent now. Each is answered exactly once, by the next call
  /// of `answered` for it.
  std::vector<LeaseRequest> due(Time now);
  void answered(const LeaseRequest& request, const LeaseAnswer& answer, Time now);
  /// Decisions since the last call.
  std::vector<LeaseDecision> take_decisions();
  /// The time at which `due` has something to send. Nothing: not before an answer or a want.
  std::optional<Time> next() const;

  /// Returns whether the key is wanted, and another node was seen to have its lease.
  bool waits_for_another(const Key& key) const {
    const auto found = waits_.find(key);
    return found != waits_.end() && found->second.waited;
  }
  const LeaseCounts& counts() const noexcept { return counts_; }
  std::size_t waiting() const noexcept { return waits_.size(); }
  std::size_t held() const noexcept { return held_.size(); }

 private:
  struct Wait {
    Time since, next;
    LeaseRequest::Kind kind = LeaseRequest::Kind::look;
    Span pause{};
    std::string token, holder;  // our token, once used; the last other one seen
    bool in_flight = false, ever_answered = false, waited = false, may_be_ours = false;
    int unanswered = 0, ended = 0;
    int acquires_unanswered = 0;  // in a row, though looks may be answered

    /// Notes whose lease a look has shown. Another lease that was seen before has ended.
    void see_holder(const std::string& now);
  };
  struct Held {
    std::string token;
    Time next;
    LeaseRequest::Kind kind = LeaseRequest::Kind::renew;
    bool in_flight = false, lost = false;
    bool refused = false;  // by the last answer
  };
  struct Parting {
    Key key;
    std::string token;
    Time next;
    int tries = 0;
    bool in_flight = false;
  };

  /// Makes the tokens of leases: random bits, which differ from process to process, and the
  /// name of this process.
  struct Tokens {
    std::string who;
    std::function<std::uint64_t()> random;
    std::string next();
  };
  /// Whole budgets that were waited for nothing.
  struct Vain {
    int budgets = 0;  ///< each begun after the one before had ended
    Time last{}, no_waits_until{};
  };

  void answered_wait(Wait& wait, const LeaseRequest& request, const LeaseAnswer& answer, Time now);
  void answered_held(Held& held, const LeaseRequest& request, const LeaseAnswer& answer, Time now);
  void answered_release(const LeaseRequest& request, const LeaseAnswer& answer, Time now);
  void rest(Wait& wait, Time now);
  void wait_for_another(const Key& key, Wait& wait, Time now);
  void decide(const Key& key, LeaseDecision::Why why, Time now);
  void part(const Key& key, std::string token, Time now);

  LeasePolicy policy_;
  Tokens tokens_;
  Accept accept_;
  std::map<Key, Wait> waits_;
  std::map<Key, Held> held_;
  std::vector<Parting> parting_;
  std::vector<LeaseDecision> decisions_;
  LeaseCounts counts_;
  Vain vain_;
};

}  // namespace kiln::fleet
