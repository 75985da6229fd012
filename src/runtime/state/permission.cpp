#include "runtime/state/permission.hpp"

#include "runtime/state/process_seal.hpp"

namespace kiln::runtime {
namespace {

MissAfterSeal handling_of(Mode mode) noexcept {
  if (mode == Mode::sealed) return MissAfterSeal::refuse;
  return mode == Mode::warn ? MissAfterSeal::warn : MissAfterSeal::quiet;
}

}  // namespace

Seal::Seal(const Config& config)
    : mode_(config.mode()),
      mode_is_set_(config.mode_is_set()),
      tier_when_sealed_(config.remote_when_sealed()) {
  join_process_seal();
}

Permission Seal::permission(const Asked& asked) const noexcept {
  const bool closed = closed_ || process_is_sealed();
  // A seal of this service or of the process makes an unset mode sealed.
  const Mode mode = !mode_is_set_ && closed ? Mode::sealed : mode_;
  const bool mode_compiles = mode != Mode::sealed;
  Permission out;
  out.disk = asked.past_seal || mode_compiles || !closed;
  out.compile = asked.may_compile && (asked.past_seal || mode_compiles);
  out.tier = asked.past_seal || (asked.may_compile && (mode_compiles || tier_when_sealed_));
  out.foreign = !out.compile || !mode_compiles;
  out.call_may_compile = asked.may_compile;
  if (closed && !asked.past_seal) out.after_seal = handling_of(mode);
  out.counts_sealed_miss = mode_ == Mode::sealed;
  return out;
}

}  // namespace kiln::runtime
