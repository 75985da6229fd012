#include "tools/kiln/store/tier/tier.hpp"

#include "base/log.hpp"
#include "cache/trust/minisign.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {

void add_strict_option(Command sub, bool& strict) {
  sub.flag("--strict", strict, "A server that does not answer is an error (exit status 5)");
}

std::shared_ptr<fleet::Tier> configured_tier(Context& context) {
  if (!context.service().config().has_remote())
    throw Error(Errc::invalid_argument,
                "no fleet's tier is configured: set KILN_REMOTE, such as redis://host:6379 "
                "(docs/guide/fleet/set-up.md)");
  auto tier = context.service().core().path().fleet().tier();
  if (!tier) throw Error(Errc::invalid_argument, "the fleet's tier cannot be used; the warning says why");
  return tier;
}

std::shared_ptr<fleet::Tier> writable_tier(Context& context) {
  auto tier = configured_tier(context);
  if (!tier->can_write())
    throw Error(Errc::invalid_argument,
                "no key to sign with: set KILN_REMOTE_SIGN to the secret key's file ('kiln bundle keygen' "
                "makes one)");
  return tier;
}

void FirstFault::note(fleet::Fault fault, const std::string& detail) {
  if (fault == fleet::Fault::none || !text.empty()) return;
  text = text_of(fault, detail);
  down = fault != fleet::Fault::refused && fault != fleet::Fault::too_large;
}

void warn_of(const FirstFault& fault, const fleet::Tier& tier) {
  if (fault) base::warn("the fleet's tier at " + tier.url().safe() + ": " + fault.text);
}

int remote_down(bool strict, int otherwise) { return strict ? kRemoteDown : otherwise; }

std::string id_of(const trust::PublicKey& key) { return trust::text_of(key.id); }

}  // namespace kiln::cli
