#include "cache/fleet/redis/backend.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cache/fleet/redis/keys.hpp"
#include "cache/fleet/redis/lease_commands.hpp"
#include "cache/fleet/redis/values.hpp"
#include "cache/fleet/tier_url.hpp"
#include "cache/fleet/toolchain_row.hpp"

namespace kiln::fleet {
namespace {

constexpr std::uint64_t kRowsReply = 2 * kMostRows * (kMostRow + 128), kSmallReply = 4096;
/// Entries in one round trip of commands that fetch many: 64 MiB at most. A server ends a connection for
/// which it has made more than its client-output-buffer-limit (docs/fleet/redis.conf: 128 MB).
constexpr std::size_t kFetchedAtOnce = 4;
/// Keys in one MGET of waiters, and bytes of its answer. Most values are nil; a few are entries that
/// have just been published.
constexpr std::size_t kLooksAtOnce = 64;
constexpr std::uint64_t kLookReply = 2 * kMostEnvelope;
/// Rows in the stream of missed rows; the oldest go first.
constexpr const char* kStreamLength = "10000";

Command report_of(const std::string& row) {
  return {{"XADD", std::string(kMissingKey), "MAXLEN", "~", kStreamLength, "*", "row", row},
          std::string(kMissingKey),
          kSmallReply};
}

}  // namespace

RedisBackend::RedisBackend(const Url& url, const BackendOptions& options)
    : RedisBackend(ClientOptions{.url = url, .timeouts = options.timeouts, .breaker = options.breaker}) {}

void RedisBackend::get(std::span<const Key> keys, base::Deadline deadline, const Each& each) {
  for (std::size_t from = 0; from < keys.size(); from += kFetchedAtOnce) {
    const auto some = keys.subspan(from, std::min(kFetchedAtOnce, keys.size() - from));
    std::vector<Command> commands;
    for (const Key& key : some)
      commands.push_back({{"GET", entry_key(key)}, tag_of(key.specialisation), kEntryReply});
    std::vector<Answer> answers = client_.call(commands, deadline);
    answers.resize(commands.size(), Answer{Fault::closed, {}, {}});
    for (std::size_t i = 0; i < some.size(); ++i) each(from + i, value_of(std::move(answers[i])));
  }
}

Outcome RedisBackend::put(const Key& key, std::string row, std::string envelope, base::Deadline deadline) {
  const std::string tag = tag_of(key.specialisation);
  std::vector<Command> commands;
  commands.push_back(
      {{"HSET", rows_key(key.specialisation), key.toolchain.hex(), std::move(row)}, tag, kSmallReply});
  commands.push_back({{"SET", entry_key(key)}, tag, kSmallReply});
  commands.back().words.push_back(std::move(envelope));      // not copied, as an initializer would
  for (Command& command : commands) command.patient = true;  // the thread of the queue waits, and no caller
  for (Answer& answer : client_.call(commands, deadline))
    if (!answer) return outcome_of(std::move(answer));
  return {};
}

std::vector<Rows> RedisBackend::list(std::span<const Digest> specialisations, base::Deadline deadline) {
  std::vector<Command> commands;
  for (const Digest& specialisation : specialisations)
    commands.push_back({{"HGETALL", rows_key(specialisation)}, tag_of(specialisation), kRowsReply});
  std::vector<Rows> out;
  for (Answer& answer : client_.call(commands, deadline)) out.push_back(rows_of(std::move(answer)));
  return out;
}

LeaseAnswers RedisBackend::lease(const std::vector<LeaseRequest>& requests, const LeasePolicy& policy,
                                 base::Deadline deadline) {
  const auto locate = [this](std::string_view tag) { return client_.location(tag); };
  const LeaseRound round(requests, policy, locate, kLooksAtOnce, kLookReply);
  std::vector<Answer> answers = client_.call(round.commands(), deadline);
  LeaseAnswers out;
  bool too_large = false;
  for (const Answer& answer : answers) {
    if (!answer) out.fault = answer.fault;
    too_large |= answer.fault == Fault::too_large;
  }
  out.answers = round.read(std::move(answers));
  if (!too_large) return out;
  for (std::size_t i = 0; i < requests.size(); ++i) {  // many entries at once: each look by itself
    if (requests[i].kind != LeaseRequest::Kind::look) continue;
    const LeaseRound one({requests[i]}, policy, locate, 1, kLookReply);
    out.answers[i] = std::move(one.read(client_.call(one.commands(), deadline)).front());
  }
  return out;
}

std::vector<Outcome> RedisBackend::report(std::span<const std::string> rows, base::Deadline deadline) {
  std::vector<Command> commands;
  for (const std::string& row : rows) commands.push_back(report_of(row));
  std::vector<Outcome> out;
  for (Answer& answer : client_.call(commands, deadline)) out.push_back(outcome_of(std::move(answer)));
  return out;
}

Url::operator TierUrl() const {
  return TierUrl(safe(), [url = *this](const BackendOptions& options) {
    return std::make_shared<RedisBackend>(url, options);
  });
}

}  // namespace kiln::fleet
