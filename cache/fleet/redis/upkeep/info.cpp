#include "cache/fleet/redis/upkeep/info.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace kiln::fleet {
namespace {

/// The value of "name:value\r\n" in an answer to INFO.
std::string info_field(const std::string& info, const std::string& name) {
  std::size_t at = info.starts_with(name + ':') ? 0 : info.find('\n' + name + ':');
  if (at == std::string::npos) return {};
  at = info.find(':', at) + 1;
  return info.substr(at, std::min(info.find_first_of("\r\n", at), info.size()) - at);
}

std::optional<std::uint64_t> info_number(const std::string& info, const std::string& name) {
  const std::string text = info_field(info, name);
  std::uint64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return out;
}

}  // namespace

void read_info(const std::string& info, ServerLook& out) {
  out.version = info_field(info, "redis_version");
  if (const std::string valkey = info_field(info, "valkey_version"); !valkey.empty()) out.version = valkey;
  out.policy = info_field(info, "maxmemory_policy");
  out.used_bytes = info_number(info, "used_memory");
  out.max_bytes = info_number(info, "maxmemory");
  out.evicted = info_number(info, "evicted_keys");
  out.clients = info_number(info, "connected_clients");
  if (const std::string aof = info_field(info, "aof_enabled"); !aof.empty()) out.persists = aof == "1";
}

std::vector<std::string> advice_on(const ServerLook& look) {
  std::vector<std::string> out;
  if (look.max_bytes && *look.max_bytes == 0)
    out.push_back("it has no maxmemory, so it grows until the machine kills it: set maxmemory");
  if (!look.policy.empty() && !look.policy.starts_with("allkeys-"))
    out.push_back("its maxmemory-policy is " + look.policy +
                  ", so a full server refuses new entries instead of dropping old ones: set allkeys-lfu");
  if (look.persists.value_or(false))
    out.push_back("it writes an append-only file of entries that can be compiled again: set appendonly no");
  return out;
}

}  // namespace kiln::fleet
