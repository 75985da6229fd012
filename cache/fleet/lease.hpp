// The lease protocol makes one compile per fleet: the server holds a lease on the key, and the other nodes
// wait for what the lease's holder publishes.
//
// The protocol, for one key:
//   look      MGET entry lease      an entry that verifies is served; no entry and no lease: acquire;
//                                   somebody's lease: look again after max(50 ms, 25 % of the time waited)
//   acquire   SET lease token NX PX 10 s, then GET entry in the same pipeline, so that what a holder
//   published
//             before it released is seen; still none: compile
//   renew     every 3 s, by a compare in Lua; a lease that was lost is asked for once more
//   release   by a compare in Lua, after the entry was put or given up
// A plain PEXPIRE, SET XX or DEL that arrives late would extend, overwrite or end another's lease: none is
// ever sent. An acquire whose answer was lost is found again by its token.
//
// Who has waited past the budget, was not answered three times in a row (or at the very first ask; a server
// in a failover answers looks and no acquire), was refused, or has seen two leases end without an entry,
// compiles without a lease. Whose waiting was in vain for three budgets, one after the other, waits for
// nobody for ten minutes. So every key is decided, whatever the server does, and one that shows leases for
// ever costs three budgets and not one for each key. Nothing here is needed for correctness: each fault costs
// at most a further compile.
//
// No I/O, no clock and no thread: the tier's thread asks `due`, sends it
// (cache/fleet/redis/lease_commands.hpp) and gives the answers back. tests/remote/lease_simulation drives
// this very code in virtual time.
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
  int unanswered = 3;          ///< in a row
  int ends_without_entry = 2;  ///< leases seen to end
  int budgets = 3;             ///< in a row, none of them served
  Span without_waits = std::chrono::minutes(10);
  bool may_write = true;  ///< false: look once, and compile what is not there
};

struct LeaseRequest {
  enum class Kind : std::uint8_t { look, acquire, resume, renew, regain, release };
  Kind kind = Kind::look;
  Key key;
  std::string token;  ///< empty of a look
};

struct LeaseAnswer {
  /// `unanswered`: nobody knows whether the server did it. `refused`: it said that it did not.
  enum class State : std::uint8_t { answered, unanswered, refused } state = State::unanswered;
  std::optional<std::string>
      entry;             ///< of look, acquire, resume: the value under the entry's name, unverified
  std::string holder;    ///< of look: whose lease it is, unverified; empty: nobody's
  bool granted = false;  ///< of the others: the lease is ours (release: was)
};

/// What became of a key that was wanted.
struct LeaseDecision {
  enum class Why : std::uint8_t {
    served,      ///< an entry was accepted; all others mean: compile
    leased,      ///< the lease is ours: `done` must follow
    read_only,   ///< not there, and this node does not lease
    unanswered,  ///< `done` must follow: when the server comes back, the lease is taken for this compile
    refused,     ///< the server takes no lease from us
    budget,      ///< waited long enough
    convoy,      ///< holders end without an entry: waiting for the next one would not end
    hopeless,    ///< another has it, and whole budgets were waited for others in vain
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
  /// True when this value of the server's is an entry of the key: verified, and kept by the callee.
  using Accept = std::function<bool(const Key&, const std::string&)>;
  enum class Start : std::uint8_t { look, acquire };

  /// `who` names this process to people. `random` gives 64 bits that differ from process to process.
  Leases(LeasePolicy policy, std::string who, std::function<std::uint64_t()> random, Accept accept);

  /// The key is asked for from now on; `acquire`: the caller has just looked, and it is not there.
  /// Nothing happens when it is wanted or held already.
  void want(const Key& key, Time now, Start start = Start::look);
  /// The compile that a decision asked for has ended, with its entry put before this or not at all.
  void done(const Key& key, Time now);
  /// Nobody wants it any more.
  void forget(const Key& key, Time now);
  /// Everything is given back as well as it can be: the process is about to leave.
  void abandon(Time now);

  /// What is to be sent now. Each is answered exactly once, by the next call of `answered` for it.
  std::vector<LeaseRequest> due(Time now);
  void answered(const LeaseRequest& request, LeaseAnswer answer, Time now);
  /// Decisions since the last call.
  std::vector<LeaseDecision> take_decisions();
  /// When `due` has something to say; nothing: not before an answer or a want.
  std::optional<Time> next() const;

  /// It is wanted, and was seen to be another's.
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
    std::string token, holder;  // ours, once asked for; the last other one seen
    bool in_flight = false, ever_answered = false, waited = false, may_be_ours = false;
    int unanswered = 0, ended = 0;
    int acquires_unanswered = 0;  // though looks may be answered

    /// Another's lease was seen: the one that was seen before has ended.
    void see_holder(const std::string& now);
  };
  struct Held {
    std::string token;
    Time next;
    LeaseRequest::Kind kind = LeaseRequest::Kind::renew;
    bool in_flight = false, lost = false;
    bool refused = false;  // when it was last asked for
  };
  struct Parting {
    Key key;
    std::string token;
    Time next;
    int tries = 0;
    bool in_flight = false;
  };

  /// Names of leases that differ from process to process: random bits, and who asks.
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
