#include "cache/fleet/tier_context.hpp"

#include <utility>

#include "base/log.hpp"

namespace kiln::fleet {
namespace {

TierOptions with_own_key(TierOptions options) {
  if (options.signer) options.trusted.push_back(options.signer->public_key());
  return options;
}

}  // namespace

TierContext::TierContext(TierOptions given, std::shared_ptr<Backend> behind, std::shared_ptr<Counts> counted)
    : options(with_own_key(std::move(given))), backend(std::move(behind)), counts(std::move(counted)) {}

void TierContext::warn(Fault fault, const char* does, const std::string& detail) const {
  if (fault != Fault::refused && fault != Fault::auth && fault != Fault::tls) return;
  base::warn_once(std::string("remote") + does + name_of(fault),
                  "the fleet's tier at " + options.url.safe() + does + detail);
}

}  // namespace kiln::fleet
