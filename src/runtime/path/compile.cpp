#include "runtime/path/compile.hpp"

#include <cstdint>
#include <cstring>

#include "base/log.hpp"
#include "compile/key/limits.hpp"

namespace kiln::runtime {
namespace {

/// CPU seconds beyond the deadline after which a worker ends by itself, because its host process was stopped.
constexpr double kCpuGrace = 30;

/// A kernel that breaks its manifest's [limits] is served, with a warning; a reference has no limits.
void report_limits(const source::Instantiation& unit, const compile::Compiled& compiled) {
  if (unit.which != source::Which::kernel) return;
  const auto broken =
      compile::broken_limits(unit.origin->manifest.limits, compiled.facts, compile::Strictness::declared);
  if (!broken.empty()) base::warn(compile::limits_sentence(compiled.facts, broken));
}

}  // namespace

ImageCompiler::ImageCompiler(ServiceState& state)
    : state_(state),
      // A compile that needs no store does not open one for the sake of slots.
      slots_([&state] { return state.stores.places_are_known() ? state.stores.flight_file() : nullptr; },
             [this] { return std::max(workers_.jobs(), workers_.cores()); }),
      workers_({.executable = state.config.get("worker"),
                .jobs = state.config.jobs(),
                .memory = state.config.compile_memory_bytes(),
                .slots = &slots_,
                .cpu_seconds = state.config.compile_deadline_s() + kCpuGrace,
                .on_empty = [this] { headers_.drop_idle(std::chrono::seconds(0)); }}) {}

void ImageCompiler::warm_up() {
  const toolchain::Toolkit& toolkit = state_.files.toolkit();
  if (toolkit.has_compiler()) workers_.warm(toolkit.compiler);
}

compile::Compiled ImageCompiler::call_worker(const Unit& unit, const std::atomic<compile::Urgency>& urgency,
                                             const std::function<bool()>& same_files) {
  tell(state_.events, KILN_EVENT_COMPILE_STARTED, unit.instantiation);
  const Stopwatch watch;
  try {
    auto demand =
        compile::demand_of(unit.instantiation, unit.closure, seconds(state_.config.compile_deadline_s()));
    demand.urgency = &urgency;
    auto compiled = compile::compile({unit.instantiation, unit.closure, unit.made, false, same_files},
                                     state_.files.toolkit(), workers_, demand, &headers_);
    tell(state_.events, KILN_EVENT_COMPILE_FINISHED, unit.instantiation,
         {.milliseconds = watch.ms(), .bytes = compiled.image.size()});
    return compiled;
  } catch (const std::exception& error) {
    ++state_.counters.compile_failures;
    const std::string first_line(error.what(), std::strcspn(error.what(), "\n"));
    tell(state_.events, KILN_EVENT_COMPILE_FAILED, unit.instantiation,
         {.message = first_line.c_str(), .milliseconds = watch.ms()});
    throw;
  }
}

Obtained ImageCompiler::compile(const Unit& unit, cache::Record& record,
                                const std::atomic<compile::Urgency>& urgency) {
  const auto same_files = [&] {
    return state_.files.read(unit.instantiation, source::Trust::content).made.text == unit.made.text;
  };
  compile::Compiled compiled = call_worker(unit, urgency, same_files);
  if (compiled.unpublishable.empty() && !same_files()) {
    compiled.unpublishable = "a file appeared in its include search path while it was being compiled";
  }
  ++state_.counters.compiles;
  state_.counters.compile_us += static_cast<std::uint64_t>(compiled.facts.compile_ms * 1000);
  report_limits(unit.instantiation, compiled);
  auto image = std::make_shared<StoredImage>();
  image->key = record.key = unit.made.key;
  record.facts = compile::encode(compiled.facts);
  record.key_text = unit.made.text;
  record.image = compiled.image;
  image->facts = std::move(compiled.facts);
  image->bytes = std::move(compiled.image);
  return {std::move(image), Outcome::compiled, std::move(compiled.unpublishable)};
}

compile::Compiled ImageCompiler::compile_alone(const source::Instantiation& unit,
                                               const Permission& permission, bool want_ptx,
                                               compile::Urgency urgency) {
  if (!permission.compile) throw Error(Errc::not_ready, hint(unit) + ": mode sealed does not compile");
  const KeyedFiles files = state_.files.read(unit, source::Trust::content);
  auto demand = compile::demand_of(unit, files.closure, seconds(state_.config.compile_deadline_s()));
  const std::atomic<compile::Urgency> as_asked = urgency;
  demand.urgency = &as_asked;
  return compile::compile({unit, files.closure, files.made, want_ptx}, state_.files.toolkit(), workers_,
                          demand);
}

}  // namespace kiln::runtime
