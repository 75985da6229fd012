#include "tools/kiln/fleet/look.hpp"

#include <algorithm>
#include <charconv>

#include "cache/fleet/redis/client.hpp"
#include "cache/fleet/redis/keys.hpp"

namespace kiln::cli {
namespace {

constexpr int kPings = 5;

/// The value of "name:value\r\n" in what INFO says.
std::string field(const std::string& info, const std::string& name) {
  std::size_t at = info.starts_with(name + ':') ? 0 : info.find('\n' + name + ':');
  if (at == std::string::npos) return {};
  at = info.find(':', at) + 1;
  return info.substr(at, std::min(info.find_first_of("\r\n", at), info.size()) - at);
}

std::optional<std::uint64_t> number(const std::string& text) {
  std::uint64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return out;
}

void look_into(fleet::Client& client, ServerLook& out) {
  if (const auto info = ask(client, {{"INFO"}, {}, 1 << 20}); info) {
    const std::string& text = info.reply.text;
    out.version = field(text, "redis_version"), out.policy = field(text, "maxmemory_policy");
    if (const std::string valkey = field(text, "valkey_version"); !valkey.empty()) out.version = valkey;
    out.used_bytes = number(field(text, "used_memory")), out.max_bytes = number(field(text, "maxmemory"));
    out.evicted = number(field(text, "evicted_keys"));
    out.clients = number(field(text, "connected_clients"));
    if (const std::string aof = field(text, "aof_enabled"); !aof.empty()) out.persists = aof == "1";
  }
  if (const auto size = ask(client, {{"DBSIZE"}, {}, 64}); size)
    out.keys = static_cast<std::uint64_t>(size.reply.integer);
  if (const auto missing = ask(client, {{"XLEN", std::string(fleet::kMissingKey)}, {}, 1024}); missing)
    out.has_missing = true, out.missing = static_cast<std::uint64_t>(missing.reply.integer);
}

}  // namespace

std::vector<ServerLook> look_at_servers(fleet::Tier& tier) {
  std::vector<ServerLook> out;
  for (OneServer& server : servers_of(tier)) {
    ServerLook look;
    look.name = server.name;
    for (int i = 0; i <= kPings; ++i) {  // the first connects
      const auto start = base::Clock::now();
      look.answer = ask(*server.client, {{"PING"}, {}, 64});
      const double ms = std::chrono::duration<double, std::milli>(base::Clock::now() - start).count();
      if (!look.answer) break;
      if (i > 0) look.round_trip_ms = i == 1 ? ms : std::min(look.round_trip_ms, ms);
    }
    if (look.answer) look_into(*server.client, look);
    out.push_back(std::move(look));
  }
  return out;
}

std::vector<std::string> advice_of(const ServerLook& look) {
  std::vector<std::string> out;
  if (!look.answer) return out;
  if (look.max_bytes && *look.max_bytes == 0)
    out.push_back("it has no maxmemory: it grows until the machine kills it");
  if (!look.policy.empty() && !look.policy.starts_with("allkeys-"))
    out.push_back("its maxmemory-policy is " + look.policy +
                  ": a full server refuses new entries instead of dropping old ones (allkeys-lfu)");
  if (look.persists.value_or(false))
    out.push_back("it writes an append-only file, of what can be compiled again (appendonly no)");
  return out;
}

Json json_of(const ServerLook& look) {
  const auto known = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  const auto text = [](const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); };
  return {{"name", look.name},
          {"answers", static_cast<bool>(look.answer)},
          {"fault", look.answer ? Json(nullptr) : Json(name_of(look.answer.fault))},
          {"detail", text(look.answer.detail)},
          {"round_trip_ms", look.answer ? Json(look.round_trip_ms) : Json(nullptr)},
          {"version", text(look.version)},
          {"keys", known(look.keys)},
          {"used_bytes", known(look.used_bytes)},
          {"max_bytes", known(look.max_bytes)},
          {"policy", text(look.policy)},
          {"evicted", known(look.evicted)},
          {"clients", known(look.clients)},
          {"persists", known(look.persists)},
          {"missing", look.has_missing ? Json(look.missing) : Json(nullptr)},
          {"advice", advice_of(look)}};
}

}  // namespace kiln::cli
