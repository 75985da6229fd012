#include "runtime/state/permission.hpp"

#include "runtime/state/process_seal.hpp"

namespace kiln::runtime {

Seal::Seal(const Config& config)
    : mode_(config.mode()),
      mode_is_set_(config.mode_is_set()),
      tier_when_sealed_(config.remote_when_sealed()) {
  join_process_seal();
}

bool Seal::is_closed() const noexcept { return closed_ || process_is_sealed(); }

Mode Seal::mode() const noexcept { return !mode_is_set_ && is_closed() ? Mode::sealed : mode_; }

Permission Seal::permission(const Asked& asked) const noexcept {
  const bool mode_compiles = mode() != Mode::sealed;
  Permission out;
  out.disk = asked.past_seal || mode_compiles || !is_closed();
  out.compile = asked.may_compile && (asked.past_seal || mode_compiles);
  out.tier = asked.past_seal || (asked.may_compile && (mode_compiles || tier_when_sealed_));
  out.foreign = !out.compile || !mode_compiles;
  out.call_may_compile = asked.may_compile;
  return out;
}

}  // namespace kiln::runtime
