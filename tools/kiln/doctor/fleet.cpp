// Probes of the fleet's tier: its settings, and whether each server answers, is configured for kiln and
// accepts writes.
#include "tools/kiln/doctor/fleet.hpp"

#include <unistd.h>

#include "base/text.hpp"
#include "cache/trust/minisign.hpp"
#include "tools/kiln/doctor/finding.hpp"
#include "tools/kiln/store/tier/look.hpp"

namespace kiln::cli {
namespace {

std::string cure_of(fleet::Fault fault) {
  if (fault == fleet::Fault::tls)
    return "renew the certificate that the message names, or correct ?ca=, ?cert= or ?key= in KILN_REMOTE";
  if (fault == fleet::Fault::auth) return "correct the user and password in KILN_REMOTE, or the server's ACL";
  return "start the server, or correct KILN_REMOTE";
}

}  // namespace

void probe_remote(Context& context, Findings& out) {
  using Status = Finding::Status;
  const runtime::Config& config = context.service().config();
  if (!config.has_remote()) return;
  std::shared_ptr<fleet::Tier> tier;
  try {
    tier = configured_tier(context);
  } catch (const Error& error) {
    out.push_back({"remote", Status::warning, "KILN_REMOTE is set, but the fleet's tier cannot be used",
                   "see the warning above and docs/guide/fleet/set-up.md"});
    return;
  }
  if (config.remote_writes() && !tier->can_write())
    out.push_back({"remote", Status::warning,
                   "KILN_REMOTE_MODE is fleet, but there is no key to sign with: this node only reads",
                   "set KILN_REMOTE_SIGN to the secret key's file"});
  probe_servers(*tier, out);
}

void probe_servers(fleet::Tier& tier, Findings& out) {
  using Status = Finding::Status;
  for (const fleet::ServerLook& look : look_at_servers(tier)) {
    if (!look) {
      out.push_back({"remote", Status::warning,
                     look.name + " does not answer: " + text_of(look.fault, look.detail) +
                         "; kernels are compiled here meanwhile",
                     cure_of(look.fault)});
      continue;
    }
    out.push_back({"remote", Status::ok,
                   look.name + " answers in " + human_ms(look.round_trip_ms) +
                       (look.keys ? ", " + counted(*look.keys, "key") : "") +
                       (tier.writes() ? "; this node reads and writes" : "; this node only reads")});
    for (const std::string& advice : look.advice)
      out.push_back({"remote", Status::note, look.name + ": " + advice, "docs/guide/fleet/server.md"});
  }
}

std::string shown_value(const runtime::Setting& setting) {
  if (setting.name == "remote_sign" || setting.name == "remote_sign_password")
    return setting.value.empty() || ::access(setting.value.c_str(), F_OK) == 0
               ? setting.value
               : "(not shown: no such file, so the value may be the secret itself)";
  if (setting.name == "remote_key") {
    for (const std::string& key : base::split(setting.value, ','))
      if (!key.empty() && !trust::looks_like_public_key(key) && ::access(key.c_str(), F_OK) != 0)
        return "(not shown: neither a public key nor an existing file, so the value may be a secret)";
  }
  if (setting.name != "remote" || setting.value.empty()) return setting.value;
  try {
    return fleet::TierUrl::parse(setting.value).safe();
  } catch (const Error&) {
    return "(not shown: the value is not a valid address, and may hold a password)";
  }
}

}  // namespace kiln::cli
