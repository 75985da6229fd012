#include "cache/fleet/redis/upkeep/server_upkeep.hpp"

#include <algorithm>
#include <cstdint>
#include <thread>
#include <utility>

#include "cache/fleet/redis/keys.hpp"
#include "cache/fleet/redis/upkeep/info.hpp"
#include "cache/fleet/redis/values.hpp"

namespace kiln::fleet {
namespace {

constexpr auto kResolvePatience = std::chrono::seconds(5);
constexpr auto kResolvePause = std::chrono::milliseconds(20);
/// Keys that one SCAN looks at.
constexpr const char* kScanned = "1000";
/// Bytes of answers.
constexpr std::uint64_t kScanReply = 4 << 20, kInfoReply = 1 << 20, kCountReply = 1024, kShortReply = 64;
constexpr int kPings = 5;

StoredValue stored_value(std::string name) {
  using Kind = StoredValue::Kind;
  StoredValue out;
  if (const auto parsed = parse_name(name)) {
    out.kind = parsed->kind == 'e' ? Kind::entry : parsed->kind == 't' ? Kind::rows : Kind::lease;
    out.key = parsed->key;
  } else if (name == kMissingKey) {
    out.kind = Kind::missed_rows;
  } else if (!name.starts_with(kKeyPrefix)) {
    out.kind = Kind::other_version;
  }
  out.name = std::move(name);
  return out;
}

Erased erased_of(Answer answer) {
  Erased out;
  if (answer) out.count = static_cast<std::uint64_t>(answer.reply.integer);
  out.fault = answer.fault;
  out.detail = std::move(answer.detail);
  return out;
}

}  // namespace

Answer ask_patiently(Client& client, const Command& command) {
  const auto deadline = base::Deadline::after(kResolvePatience);
  for (;;) {
    Answer answer = client.call(command, base::Deadline::never());
    if (answer.fault != Fault::unresolved || deadline.passed()) return answer;
    std::this_thread::sleep_for(kResolvePause);
  }
}

RedisServerUpkeep::RedisServerUpkeep(const ClientOptions& options)
    : name_(options.url.servers.front().name), client_(options) {}

Outcome RedisServerUpkeep::reach() { return outcome_of(ask({{"PING"}, {}, kShortReply})); }

ServerLook RedisServerUpkeep::look() {
  ServerLook out;
  out.name = name_;
  for (int i = 0; i <= kPings; ++i) {  // the first connects
    const auto start = base::Clock::now();
    static_cast<Outcome&>(out) = reach();
    const double ms = std::chrono::duration<double, std::milli>(base::Clock::now() - start).count();
    if (!out) return out;
    if (i > 0) out.round_trip_ms = i == 1 ? ms : std::min(out.round_trip_ms, ms);
  }
  // An ACL may forbid each of the three.
  if (const Answer info = ask({{"INFO"}, {}, kInfoReply})) read_info(info.reply.text, out);
  if (const Answer size = ask({{"DBSIZE"}, {}, kShortReply}))
    out.keys = static_cast<std::uint64_t>(size.reply.integer);
  if (const Answer missing = ask({{"XLEN", std::string(kMissingKey)}, {}, kCountReply}))
    out.missing = static_cast<std::uint64_t>(missing.reply.integer);
  out.advice = advice_on(out);
  return out;
}

Outcome RedisServerUpkeep::walk(Walk what, const Page& each) {
  const std::string pattern = what == Walk::entries ? std::string(kKeyPrefix) + "*:e:*" : "kiln:*";
  std::string cursor = "0";
  do {
    Answer answer = ask({{"SCAN", cursor, "MATCH", pattern, "COUNT", kScanned}, {}, kScanReply});
    if (!answer) return outcome_of(std::move(answer));
    if (answer.reply.elements.size() != 2)
      return {Fault::protocol, "SCAN: the answer does not have two elements"};
    cursor = answer.reply.elements[0].text;
    std::vector<StoredValue> values;
    for (Reply& name : answer.reply.elements[1].elements) {
      StoredValue value = stored_value(std::move(name.text));
      if (what == Walk::everything || value.kind == StoredValue::Kind::entry)
        values.push_back(std::move(value));
    }
    if (!values.empty()) each(values);
  } while (cursor != "0");
  return {};
}

Value RedisServerUpkeep::entry(const Key& key) {
  return value_of(ask({{"GET", entry_key(key)}, {}, kEntryReply}));
}

std::optional<bool> RedisServerUpkeep::has_entry(const Key& key) {
  const Answer answer = ask({{"EXISTS", entry_key(key)}, {}, kShortReply});
  return answer ? std::optional(answer.reply.integer == 1) : std::nullopt;
}

std::optional<Rows> RedisServerUpkeep::rows(const Digest& specialisation) {
  Answer answer = ask({{"HGETALL", rows_key(specialisation)}, {}, kEntryReply});
  if (is_of_wrong_type(answer.fault, answer.detail)) return std::nullopt;
  return rows_of(std::move(answer));
}

Erased RedisServerUpkeep::erase_rows(const Digest& specialisation, std::span<const std::string> toolchains) {
  std::vector<std::string> words{"HDEL", rows_key(specialisation)};
  words.insert(words.end(), toolchains.begin(), toolchains.end());
  return erased_of(ask({std::move(words), {}, kCountReply}));
}

Erased RedisServerUpkeep::erase(const StoredValue& value) {
  return erased_of(ask({{"UNLINK", value.name}, {}, kCountReply}));
}

}  // namespace kiln::fleet
