#include "runtime/path/misses.hpp"

#include "base/log.hpp"
#include "kiln/error.hpp"
#include "runtime/state/refusal.hpp"

namespace kiln::runtime {

Misses::Misses(ServiceState& state, Recorder& recorder, Path& path, Background& background)
    : state_(state), recorder_(recorder), path_(path), background_(background), seal_(state.config) {}

void Misses::seal() {
  seal_.close();
  path_.fleet().tier();
  const MissAfterSeal now = permission({}).after_seal;
  if (now == MissAfterSeal::refuse) return;
  const Setting& told = state_.config.setting("mode");
  base::warn_once("seal " + told.value + ' ' + told.origin,
                  "seal() changes nothing: mode = '" + told.value + "' (from " + told.origin +
                      ") compiles kernels that are not ready" +
                      (now == MissAfterSeal::warn ? ", with a warning for each" : "") +
                      "; to have them refused, leave the mode unset or set it to sealed");
}

bool Misses::refuses(const source::Template& origin, const source::Resolved& resolved, const Asked& asked) {
  const MissAfterSeal now = permission(asked).after_seal;
  if (now == MissAfterSeal::quiet) return false;
  const std::string name = resolved.specialization.to_string();
  if (now == MissAfterSeal::refuse) {
    ++state_.counters.sealed_misses;
    note(resolved);
    recorder_.record(origin, resolved, Recorder::When::later);
  } else {
    base::warn(name + " was not ready after the seal");
  }
  state_.events.tell(KILN_EVENT_MISS_AFTER_SEAL, name, resolved.arch.name(), {});
  return now == MissAfterSeal::refuse;
}

void Misses::note(const source::Resolved& resolved) {
  std::string row = missing_.add(resolved);
  if (row.empty() || !state_.config.has_remote()) return;
  if (path_.fleet().is_open()) return path_.fleet().report_missing(std::move(row));
  // Opening the tier reads files, which a sealed service and a capture must not do.
  background_.run(Background::Work::ahead, [this, row = std::move(row)](const char* why_not) {
    if (!why_not) path_.fleet().report_missing(row);
  });
}

void Misses::refuse_when_sealed(const source::Template& origin, const source::Resolved& resolved,
                                const Asked& asked) {
  if (!refuses(origin, resolved, asked)) return;
  throw Error(Errc::not_ready,
              "sealed: " + resolved.specialization.to_string() + " is not in memory" + remedy(resolved));
}

}  // namespace kiln::runtime
