// kiln remote status: whether the servers answer, how fast, what they hold, and whether this node may write.
#include "tools/kiln/fleet/status.hpp"

#include <algorithm>

#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/store/tier/look.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kIndent = 16;

void print_server(const fleet::ServerLook& look) {
  print("\n");
  print_heading(look.name);
  if (!look) {
    print_definition("does not answer", text_of(look.fault, look.detail), kIndent);
    return;
  }
  print_definition(
      "answers",
      "in " + human_ms(look.round_trip_ms) + (look.version.empty() ? "" : ", version " + look.version),
      kIndent);
  if (look.keys) print_definition("keys", std::to_string(*look.keys), kIndent);
  if (look.used_bytes)
    print_definition("memory",
                     human_bytes(*look.used_bytes) +
                         (look.max_bytes.value_or(0) ? " of " + human_bytes(*look.max_bytes) : "") +
                         (look.policy.empty() ? "" : ", " + look.policy) +
                         (look.evicted ? ", " + std::to_string(*look.evicted) + " evicted" : ""),
                     kIndent);
  if (look.clients) print_definition("connections", std::to_string(*look.clients), kIndent);
  if (look.missing)
    print_definition(
        "missing",
        counted(*look.missing, "row") + " reported; 'kiln prewarm --remote --missed' compiles them", kIndent);
  for (const std::string& advice : look.advice) print_definition("note", advice, kIndent);
}

int status(Context& context, bool strict) {
  const auto tier = configured_tier(context);
  const std::vector<fleet::ServerLook> servers = look_at_servers(*tier);
  const bool all =
      std::all_of(servers.begin(), servers.end(), [](const fleet::ServerLook& s) { return bool(s); });
  if (context.json) {
    Json out({{"schema", context.schema()},
              {"url", tier->url().safe()},
              {"mode", context.service().config().get("remote_mode")},
              {"writes", tier->writes()},
              {"trusted", Json::array()},
              {"signs_with", tier->signer() ? Json(id_of(tier->signer()->public_key())) : Json(nullptr)},
              {"ok", all},
              {"servers", Json::array()}});
    for (const trust::PublicKey& key : tier->trusted()) out["trusted"].push_back(id_of(key));
    for (const fleet::ServerLook& server : servers) out["servers"].push_back(json_of(server));
    print_json(out);
  } else {
    print_definition("tier", tier->url().safe(), kIndent);
    print_definition("mode",
                     context.service().config().get("remote_mode") +
                         (tier->writes() ? ": this node reads and writes" : ": this node only reads"),
                     kIndent);
    std::string ids;
    for (const trust::PublicKey& key : tier->trusted()) ids += (ids.empty() ? "" : ", ") + id_of(key);
    print_definition("trusts", ids, kIndent);
    if (tier->signer()) print_definition("signs with", id_of(tier->signer()->public_key()), kIndent);
    for (const fleet::ServerLook& server : servers) print_server(server);
  }
  return all ? kDone : remote_down(strict, kDone);
}

}  // namespace

void add_remote_status(Command remote, Context& context) {
  const auto strict = std::make_shared<bool>(false);
  const Command sub =
      context.add_command(remote, "status", "Show whether the servers answer, how fast, and what they hold",
                          [&context, strict] { return status(context, *strict); });
  add_strict_option(sub, *strict);
  sub.footer("Exit status: 0 done, 1 failed, 2 usage or no tier, 5 a server is down (with --strict).");
}

}  // namespace kiln::cli
