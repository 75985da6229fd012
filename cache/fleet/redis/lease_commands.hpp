// The lease protocol's requests as commands of a Redis server, and its answers as the protocol's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/fleet/lease.hpp"
#include "cache/fleet/redis/reply.hpp"

namespace kiln::fleet {

/// The two scripts: KEYS[1] is the lease, ARGV[1] the token, ARGV[2] milliseconds. docs/fleet/users.acl names
/// them by their text and allows no others. So they are fixed, and have no space, quote or last parenthesis,
/// which an ACL's grammar could not hold. SET is their only writing command, so that no user must be allowed
/// PEXPIRE or DEL. A release leaves the lease 1 ms to live.
inline constexpr std::string_view kRenewScript =
    "return(redis.call([[GET]],KEYS[1])==ARGV[1]and("
    "redis.call([[SET]],KEYS[1],ARGV[1],[[PX]],ARGV[2])and(1))or(0));";
inline constexpr std::string_view kReleaseScript =
    "return(redis.call([[GET]],KEYS[1])==ARGV[1]and("
    "redis.call([[SET]],KEYS[1],ARGV[1],[[PX]],1)and(1))or(0));";

/// One round of requests. All looks of one server are one MGET.
class LeaseRound {
 public:
  /// Keys whose tags have equal locations may stand in one MGET (Client::location).
  using Locate = std::function<std::uint32_t(const std::string& tag)>;

  /// One MGET has at most `most_looks` keys, and an answer of at most `reply_limit` bytes. A round that was
  /// too_large is asked again with one key in each MGET.
  LeaseRound(std::vector<LeaseRequest> requests, const LeasePolicy& policy, const Locate& locate,
             std::size_t most_looks, std::uint64_t reply_limit);

  const std::vector<LeaseRequest>& requests() const noexcept { return requests_; }
  const std::vector<Command>& commands() const noexcept { return commands_; }
  /// Returns one answer for each request. `answers` are the answers to commands(), in order; missing
  /// ones count as unanswered.
  std::vector<LeaseAnswer> read(std::vector<Answer> answers) const;

 private:
  struct Where {
    std::size_t command = 0;
    std::size_t element = 0;  // of a look: where in the MGET's answer its two values begin
  };
  void add_look(std::size_t request, std::uint32_t location, std::size_t most, std::uint64_t limit);

  std::vector<LeaseRequest> requests_;
  std::size_t values_of_look_;  // entry and lease; for a node that only reads, the entry
  std::vector<Where> where_;
  std::vector<Command> commands_;
  std::map<std::uint32_t, std::size_t> open_;  // location -> the MGET that still takes keys
};

}  // namespace kiln::fleet
