// A Redis server in virtual time. It has the few commands of the lease protocol, its own wall clock, and
// replication that loses the last writes at a failover. It records a Period for every lease.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cache/fleet/redis/reply.hpp"

namespace kiln::fleet::simulation {

using Micros = std::int64_t;

/// The time for which one token held one lease.
struct Period {
  enum class End { open, released, expired, fault, deleted, overwritten } end = End::open;
  std::string lease, token;
  Micros began = 0, ended = 0;
  bool entry_was_there = false;  ///< when the period began
  int compiles = 0;
};

class Server {
 public:
  /// Executes a command. `by` is the sender's token on this key's lease, for the record of periods.
  Reply execute(const std::vector<std::string>& words, const std::string& by, Micros now);
  /// Moves the server's wall clock, by which leases expire.
  void set_clock(Micros forward, Micros now);
  /// Fails over to a replica that has lost the writes of the last `lag`.
  void fail_over(Micros lag, Micros now);
  void flush(Micros now);
  /// Removes expired values and ends their periods.
  void expire(Micros now);

  const std::vector<Period>& periods() const { return periods_; }
  std::vector<Period>& periods() { return periods_; }
  /// The newest period of this token on this lease; null when there is none.
  Period* period_of(const std::string& lease, const std::string& token);
  bool has(const std::string& key, Micros now) {
    expire(now);
    return values_.contains(key);
  }
  std::string value(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? std::string() : found->second.bytes;
  }
  /// The number of commands that changed another node's lease before its end.
  std::uint64_t touched_others = 0;
  std::map<std::string, std::uint64_t> commands;  ///< by name
  std::map<Micros, std::uint64_t> commands_at;    ///< by tenth of a second

 private:
  struct Value {
    std::string bytes;
    std::optional<Micros> expires;  // by the wall clock
  };
  Reply set(const std::vector<std::string>& words, const std::string& by, Micros now);
  void store(const std::string& key, Value value, const std::string& by, Micros now);
  void erase(const std::string& key, Period::End why, Micros now);
  void begin_period(const std::string& key, const std::string& token, Micros now);
  void put_back(const std::string& key, const std::optional<Value>& before, Micros now);
  void end_period(const std::string& key, Period::End why, Micros now);
  Micros wall(Micros now) const { return now + offset_; }

  struct Undo {
    Micros at;
    std::string key;
    std::optional<Value> before;
  };
  void note(const std::string& key, Micros now);

  std::map<std::string, Value> values_;
  std::deque<Undo> undo_;                    // writes that the replica may not have received
  std::map<std::string, std::size_t> open_;  // lease -> its period
  std::vector<Period> periods_;
  Micros offset_ = 0;
};

}  // namespace kiln::fleet::simulation
