#include "tools/kiln/fleet/tier.hpp"

#include <thread>

#include "base/log.hpp"
#include "cache/fleet/redis/backend.hpp"
#include "cache/fleet/redis/client.hpp"
#include "cache/trust/minisign.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

constexpr auto kResolvePatience = std::chrono::seconds(5);
constexpr auto kResolvePause = std::chrono::milliseconds(20);
/// Keys that one SCAN looks at, and bytes of its answer.
constexpr const char* kScanned = "1000";
constexpr std::uint64_t kScanReply = 4 << 20;

}  // namespace

void add_strict_option(Command sub, bool& strict) {
  sub.flag("--strict", strict, "A server that does not answer is an error (exit status 5)");
}

std::shared_ptr<fleet::Tier> configured_tier(Context& context) {
  if (!context.service().config().has_remote())
    throw Error(Errc::invalid_argument,
                "no fleet's tier is configured: set KILN_REMOTE, such as redis://host:6379 (docs/fleet.md)");
  auto tier = context.service().core().path().fleet().tier();
  if (!tier) throw Error(Errc::invalid_argument, "the fleet's tier cannot be used; the warning says why");
  return tier;
}

std::shared_ptr<fleet::Tier> writable_tier(Context& context) {
  auto tier = configured_tier(context);
  if (!tier->can_write())
    throw Error(Errc::invalid_argument,
                "nothing to sign with: set KILN_REMOTE_SIGN to the secret key's file ('kiln bundle keygen' "
                "makes one)");
  return tier;
}

fleet::Answer ask(fleet::Client& client, const fleet::Command& command) {
  const auto deadline = base::Deadline::after(kResolvePatience);
  for (;;) {
    fleet::Answer answer = client.call(command, base::Deadline::never());
    if (answer.fault != fleet::Fault::unresolved || deadline.passed()) return answer;
    std::this_thread::sleep_for(kResolvePause);
  }
}

std::vector<OneServer> servers_of(fleet::Tier& tier) {
  std::vector<OneServer> out;
  const auto add = [&](fleet::Endpoint endpoint) {
    fleet::Url url = fleet::redis_url(tier.backend());
    url.cluster = false;
    url.servers = {std::move(endpoint)};
    out.push_back({url.servers.front().name,
                   std::make_unique<fleet::Client>(fleet::ClientOptions{.url = std::move(url)})});
  };
  if (!fleet::redis_url(tier.backend()).cluster) {
    for (const fleet::Endpoint& endpoint : fleet::redis_url(tier.backend()).servers) add(endpoint);
    return out;
  }
  // A cluster tells of its nodes when it is asked for slots that another has.
  for (int tag = 0; tag < 64; ++tag)
    ask(fleet::redis_client(tier.backend()),
        {{"EXISTS", "kiln:1:{" + std::to_string(tag) + "}:probe"}, std::to_string(tag), 64});
  for (const fleet::ServerStatus& server : tier.backend().health()) {
    const std::size_t colon = server.name.rfind(':');
    if (colon == std::string::npos) continue;
    fleet::Endpoint endpoint;
    endpoint.name = server.name;
    endpoint.host = server.name.substr(0, colon);
    if (endpoint.host.starts_with('[')) endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
    endpoint.port = static_cast<std::uint16_t>(std::stoi(server.name.substr(colon + 1)));
    add(std::move(endpoint));
  }
  return out;
}

fleet::Answer scan(fleet::Client& client, const std::string& pattern,
                   const std::function<void(std::vector<std::string>)>& each) {
  std::string cursor = "0";
  do {
    fleet::Answer answer =
        ask(client, {{"SCAN", cursor, "MATCH", pattern, "COUNT", kScanned}, {}, kScanReply});
    if (!answer) return answer;
    if (answer.reply.elements.size() != 2) return {fleet::Fault::protocol, "SCAN: no such answer", {}};
    cursor = answer.reply.elements[0].text;
    std::vector<std::string> names;
    for (fleet::Reply& name : answer.reply.elements[1].elements) names.push_back(std::move(name.text));
    if (!names.empty()) each(std::move(names));
  } while (cursor != "0");
  return {};
}

void FirstFault::note(fleet::Fault fault, const std::string& detail) {
  if (fault == fleet::Fault::none || !text.empty()) return;
  text = text_of(fault, detail);
  down = fault != fleet::Fault::refused && fault != fleet::Fault::too_large;
}

int remote_down(bool strict, int otherwise) { return strict ? kRemoteDown : otherwise; }

std::string id_of(const trust::PublicKey& key) { return trust::text_of(key.id); }

}  // namespace kiln::cli
