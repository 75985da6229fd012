#include "runtime/path/core.hpp"

#include "base/log.hpp"
#include "kiln/error.hpp"
#include "runtime/state/refusal.hpp"

namespace kiln::runtime {

Core::Core(const Options& options, const std::string& memo_file, Events events)
    : config_(Config::resolve(options)),
      adopt_(options.adopt),
      seal_(config_),
      recorder_(config_.get("record")),
      state_(config_, memo_file, events),
      choices_(config_, state_.stores),
      path_(state_),
      // Two load while the others compile.
      background_([this] { return path_.compiler().workers().jobs() + 2; }) {
  if (!permission().compile) path_.fleet().tier();  // opened now: what is missed later touches no file
}

void Core::stop() noexcept {
  path_.end_compiles();  // which the work behind callers' backs may be waiting for
  background_.stop();
}

void Core::seal() {
  seal_.close();
  path_.fleet().tier();
  const Mode now = seal_.mode();
  if (now == Mode::sealed) return;
  const Setting& told = config_.setting("mode");
  base::warn_once("seal " + told.value + ' ' + told.origin,
                  "seal() changes nothing: mode = '" + told.value + "' (from " + told.origin +
                      ") compiles kernels that are not ready" +
                      (now == Mode::warn ? ", with a warning for each" : "") +
                      "; for a seal that refuses them, leave the mode unset or set it to sealed");
}

bool Core::misses(const source::Template& origin, const source::Resolved& resolved) {
  const Mode now = seal_.mode();
  if (now == Mode::jit || !seal_.is_closed()) return false;
  const std::string name = resolved.specialization.to_string();
  if (now == Mode::sealed) {
    ++state_.counters.sealed_misses;
    note_missing(resolved);
    recorder_.record(origin, resolved, Recorder::When::later);
  } else {
    base::warn("after the seal: " + name + " was not ready");
  }
  state_.events.tell(KILN_EVENT_MISS_AFTER_SEAL, name, resolved.arch.name(), {});
  return now == Mode::sealed;
}

void Core::note_missing(const source::Resolved& resolved) {
  std::string row = missing_.add(resolved);
  if (row.empty() || !config_.has_remote()) return;
  if (path_.fleet().is_open()) return path_.fleet().report_missing(std::move(row));
  // It reads files, which a sealed service and a capture do not.
  background_.run(Background::Work::ahead, [this, row = std::move(row)](const char* why_not) {
    if (!why_not) path_.fleet().report_missing(row);
  });
}

void Core::refuse_when_sealed(const source::Template& origin, const source::Resolved& resolved) {
  if (!misses(origin, resolved)) return;
  throw Error(Errc::not_ready,
              "sealed: " + resolved.specialization.to_string() + " is not in memory" + remedy(resolved));
}

void Core::expect_misses() {
  if (config_.has_remote()) return;
  if (nothing_cached(config_))
    path_.compiler().warm_up();
  else if (config_.get("cache_layers").empty())  // else nobody looked
    choices_.note_that_a_store_is_there();
}

Obtained Core::obtain(const source::Instantiation& unit, const ObtainOptions& options) {
  try {
    return path_.obtain(unit, options);
  } catch (const Error& error) {
    if (error.code() == Errc::not_ready && !permission().compile) note_missing(unit.resolved);
    throw;
  }
}

}  // namespace kiln::runtime
