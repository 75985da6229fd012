// A Redis server in virtual time: the few commands of the lease protocol, its own wall clock, replication
// that loses the last writes at a failover, and a witness of every lease.
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

/// The time that one token held one lease.
struct Period {
  enum class End { open, released, expired, fault, deleted, overwritten } end = End::open;
  std::string lease, token;
  Micros began = 0, ended = 0;
  bool entry_was_there = false;  ///< when it began
  int compiles = 0;
};

class Server {
 public:
  /// What `by` sends arrives. `by` is its token on this key's lease, for the witness.
  Reply execute(const std::vector<std::string>& words, const std::string& by, Micros now);
  /// The wall clock, which leases expire by.
  void set_clock(Micros forward, Micros now);
  /// Writes of the last `lag` are lost.
  void fail_over(Micros lag, Micros now);
  void flush(Micros now);
  /// What has expired is gone, and the witness knows.
  void expire(Micros now);

  const std::vector<Period>& periods() const { return periods_; }
  std::vector<Period>& periods() { return periods_; }
  /// The newest one of this token.
  Period* period_of(const std::string& lease, const std::string& token);
  bool has(const std::string& key, Micros now) {
    expire(now);
    return values_.contains(key);
  }
  std::string value(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? std::string() : found->second.bytes;
  }
  /// Commands that changed a lease which was somebody else's and had not ended.
  std::uint64_t touched_others = 0;
  std::map<std::string, std::uint64_t> commands;  ///< by name
  std::map<Micros, std::uint64_t> commands_at;    ///< by tenths of a second

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
  std::deque<Undo> undo_;                    // what the replica may not have got
  std::map<std::string, std::size_t> open_;  // lease -> its period
  std::vector<Period> periods_;
  Micros offset_ = 0;
};

}  // namespace kiln::fleet::simulation
