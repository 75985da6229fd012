#include "runtime/path/core.hpp"

#include "kiln/error.hpp"

namespace kiln::runtime {

Core::Core(const Options& options, const std::string& memo_file, Events events)
    : config_(Config::resolve(options)),
      adopt_(options.adopt),
      recorder_(config_.get("record")),
      state_(config_, memo_file, events),
      choices_(config_, state_.stores),
      path_(state_),
      misses_(state_, recorder_, path_, background_),
      // Two threads load while the others compile.
      background_([this] { return path_.compiler().workers().jobs() + 2; }) {
  if (!permission().compile) path_.fleet().tier();  // opened now, so that a later miss touches no file
}

void Core::stop() noexcept {
  path_.end_compiles();  // work in the background may be waiting for them
  background_.stop();
}

void Core::expect_misses() {
  if (config_.has_remote()) return;
  if (nothing_cached(config_))
    path_.compiler().warm_up();
  else if (config_.get("cache_layers").empty())  // with layers, nothing_cached() did not look
    choices_.note_that_a_store_is_there();
}

Obtained Core::obtain(const source::Instantiation& unit, const ObtainOptions& options) {
  try {
    return path_.obtain(unit, options);
  } catch (const Error& error) {
    if (error.code() == Errc::not_ready && !permission().compile) misses_.note(unit.resolved);
    throw;
  }
}

}  // namespace kiln::runtime
