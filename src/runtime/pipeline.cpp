#include "runtime/pipeline_unit.hpp"

#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "cache/fleet/tier.hpp"
#include "compile/limits.hpp"
#include "runtime/layout_check.hpp"
#include "toolchain/locate.hpp"

namespace kiln::runtime {
namespace {

/// Images kept for other contexts and for stores that cannot be written; the oldest go first.
constexpr std::size_t kMemoryBytes = std::size_t{256} << 20;
/// CPU seconds beyond the deadline after which a worker ends by itself, when its host was stopped.
constexpr double kCpuGrace = 30;

/// A kernel that breaks its manifest's [limits] is served, and said to; a reference has none.
void report_limits(const source::Instantiation& unit, const compile::Compiled& compiled) {
  if (unit.which != source::Which::kernel) return;
  const auto broken =
      compile::broken_limits(unit.origin->manifest.limits, compiled.facts, compile::Strictness::declared);
  if (!broken.empty()) base::warn(compile::limits_sentence(compiled.facts, broken));
}

}  // namespace

std::string default_memo_file() { return "/dev/shm/kiln-" + std::to_string(::geteuid()) + ".headers"; }

Pipeline::Pipeline(const Config& config, const std::string& memo_file, Events events)
    : config_(config),
      events_(events),
      scans_(memo_file),
      slots_([this] { return places_.made() ? flight_file() : nullptr; },  // a probe's compile makes none
             [this] { return std::max(workers_.jobs(), workers_.cores()); }),
      workers_({.executable = config.get("worker"),
                .jobs = config.jobs(),
                .memory = config.compile_memory_bytes(),
                .slots = &slots_,
                .cpu_seconds = config.compile_deadline_s() + kCpuGrace,
                .on_empty = [this] { headers_.drop_idle(std::chrono::seconds(0)); }}) {
  lifetime_.ask_where([this] { return places_.made() ? std::string() : existing_store(config_); });
}

void Pipeline::end_compiles() noexcept {
  leaving_ = true;
  if (const auto* tier = tier_.made(); tier && *tier) (*tier)->stop();
  workers_.stop();
}

Pipeline::~Pipeline() {
  end_compiles();
  State& state = state_.get();
  std::unique_lock lock(state.mutex);
  state.landed.wait(lock, [&] { return state.running == 0; });
}

const toolchain::Toolkit& Pipeline::toolkit() {
  return toolkit_.get([&] {
    return toolchain::locate_toolkit({config_.get("cuda_home"), !config_.hermetic()});
  });
}

const Places& Pipeline::places() {
  return places_.get([&] {
    Places opened = open_store(config_);
    if (opened.writable) lifetime_.count_in(opened.writable->directory());
    return opened;
  });
}

std::shared_ptr<cache::Store> Pipeline::store() { return places().writable; }

/// kiln's own stand-ins for host headers.
std::string Pipeline::shims() const {
  const std::string directory = config_.installed_templates() + "/host";
  std::error_code error;
  if (config_.installed_templates().empty() || !std::filesystem::is_directory(directory, error)) {
    throw Error(Errc::source,
                "host_headers = \"shim\" needs the headers that come with kiln's templates, and " +
                    (config_.installed_templates().empty()
                         ? config_.about_templates()
                         : "'" + directory + "' is no directory: install kiln's templates whole"));
  }
  return directory;
}

/// A template that includes "kiln/vector.cuh" does not compile without kiln's own headers.
static void warn_of_own_headers(const source::Closure& closure, const Config& config) {
  if (!config.installed_templates().empty()) return;
  for (const std::string& spelling : closure.missing) {
    if (spelling.compare(1, 5, "kiln/") == 0)
      base::warn_once("own headers",
                      "no file was found for #include " + spelling + "; " + config.about_templates());
  }
}

Pipeline::Unit Pipeline::prepare(const source::Instantiation& unit, source::Trust trust) {
  const source::Template& origin = *unit.origin;
  const source::CompileSpec& compile = unit.compile;
  source::SearchPath search;
  if (!origin.directory.empty()) {
    const std::string beside =
        base::directory_of(unit.source_name);  // the compiler does not know where it lies
    if (beside != ".") search.project.push_back(origin.directory + '/' + beside);
    search.project.push_back(origin.directory);
  }
  for (const std::string& directory : compile.include_dirs)
    search.project.push_back(origin.directory + '/' + directory);
  for (std::string& directory : config_.include_directories()) search.project.push_back(std::move(directory));
  if (!config_.installed_templates().empty()) search.project.push_back(config_.installed_templates());
  if (compile.host_headers == source::HostHeaders::shim) search.project.push_back(shims());
  search.toolkit = toolkit().include_dirs;
  search.replace = compile.replace;

  std::vector<std::string> extra = compile.preinclude;
  extra.insert(extra.end(), compile.extra_includes.begin(), compile.extra_includes.end());
  std::string text;  // what [compile] define puts in front of the source may name headers, too
  for (const auto& [name, value] : compile.define) text += "#define " + name + ' ' + value + '\n';
  text += unit.source;
  // So do the manifest's texts that become code.
  text += unit.epilogue();
  for (const std::string& name : unit.name_expressions()) text += '\n' + name;
  Unit out{{base::digest_of(unit.source), source::scan_closure(text, extra, search, scans_, trust), {}},
           unit};
  warn_of_own_headers(out.closure, config_);
  out.made = compile::make_key(out.instantiation, out.closure, toolkit());
  scans_.save();
  return out;
}

Prepared Pipeline::read_files(const source::Instantiation& unit) {
  return prepare(unit, source::Trust::memo);
}

void Pipeline::expect_misses() {
  if (config_.has_remote()) return;
  if (nothing_cached(config_))
    warm_up();
  else
    store_was_there_ = config_.get("cache_layers").empty();  // else nobody looked
}

std::optional<Obtained> Pipeline::from_memory(const Key& key, const ObtainOptions& options) {
  State& state = state_.get();
  std::lock_guard lock(state.mutex);
  if (const auto found = state.memory.find(key);
      found != state.memory.end() && !options.rejected.contains(key)) {
    ++counters_.memory_hits;
    return Obtained{found->second, Outcome::memory, {}};
  }
  throw_remembered(state, key);
  return std::nullopt;
}

/// REQUIRES: the state's mutex.
void Pipeline::throw_remembered(const State& state, const Key& key) {
  if (const auto found = state.refused.find(key); found != state.refused.end()) {
    ++counters_.remembered_failures;
    std::rethrow_exception(found->second);
  }
  if (const auto found = state.resting.find(key);
      found != state.resting.end() && base::Clock::now() < found->second.until) {
    ++counters_.remembered_failures;
    std::rethrow_exception(found->second.error);
  }
}

std::optional<Outcome> Pipeline::look(const source::Instantiation& unit) {
  const Unit prepared = prepare(unit, source::Trust::memo);
  {
    State& state = state_.get();
    std::lock_guard lock(state.mutex);
    if (state.memory.contains(prepared.made.key)) return Outcome::memory;
  }
  const auto found = from_disk(prepared, {}, false);
  return found ? std::optional(found->outcome) : std::nullopt;
}

std::optional<Obtained> Pipeline::find(const Unit& unit, const ObtainOptions& options) {
  if (auto found = from_memory(unit.made.key, options)) return found;
  auto found = from_disk(unit, options, true);
  if (found) remember(found->image);
  return found;
}

std::optional<Obtained> Pipeline::there(const source::Instantiation& unit, const ObtainOptions& options) {
  auto found = find(prepare(unit, source::Trust::memo), options);
  if (found) check_layouts(unit, found->image->facts);
  return found;
}

/// The manifest's arguments are in no key: they are compared whatever step served the image.
Obtained Pipeline::obtain(const source::Instantiation& instantiation, const ObtainOptions& options) {
  Obtained out = obtain_image(instantiation, options);
  if (options.arguments == Arguments::as_declared) check_layouts(instantiation, out.image->facts);
  return out;
}

Obtained Pipeline::obtain_image(const source::Instantiation& instantiation, const ObtainOptions& options) {
  const bool known = options.prepared && options.prepared->source == base::digest_of(instantiation.source);
  auto unit = std::make_shared<const Unit>(known ? Unit{*options.prepared, instantiation}
                                                 : prepare(instantiation, source::Trust::memo));
  if (auto found = find(*unit, options)) return std::move(*found);
  if (!options.may_compile) {
    if (options.tier == AskTier::yes && config_.has_remote()) return fly(std::move(unit), options);
    if (config_.mode() == Mode::sealed) ++counters_.sealed_misses;
    refuse(instantiation);
  }
  if (!config_.has_remote()) warm_up();  // of a fleet, mostly another node compiles
  if (unit->closure.memoised) {          // a memo may decide a hit; what is compiled is hashed again
    const Key by_memo = unit->made.key;
    unit = std::make_shared<const Unit>(prepare(instantiation, source::Trust::content));
    if (unit->made.key != by_memo) {
      if (auto found = find(*unit, options)) return std::move(*found);
    }
  }
  return fly(std::move(unit), options);
}

/// The compiler is needed now: a worker opens it while the flight lock is taken and files are read again.
void Pipeline::warm_up() {
  if (config_.mode() != Mode::sealed && toolkit().has_compiler())
    workers_.warm(toolkit().nvrtc, toolkit().nvrtc_builtins);
}

Obtained Pipeline::compile_now(const Unit& unit, cache::Record& record,
                               const std::atomic<compile::Urgency>& urgency) {
  const auto same_closure = [&] {
    return prepare(unit.instantiation, source::Trust::content).made.text == unit.made.text;
  };
  compile::Compiled compiled;
  tell(KILN_EVENT_COMPILE_STARTED, unit);
  const Stopwatch watch;
  try {
    auto demand = compile::demand_of(unit.instantiation, unit.closure, seconds(config_.compile_deadline_s()));
    demand.urgency = &urgency;
    compiled = compile::compile({unit.instantiation, unit.closure, unit.made, false, same_closure}, toolkit(),
                                workers_, demand, &headers_);
  } catch (const std::exception& error) {
    ++counters_.compile_failures;
    const std::string first_line(error.what(), std::strcspn(error.what(), "\n"));
    tell(KILN_EVENT_COMPILE_FAILED, unit, {.message = first_line.c_str(), .milliseconds = watch.ms()});
    throw;
  }
  tell(KILN_EVENT_COMPILE_FINISHED, unit, {.milliseconds = watch.ms(), .bytes = compiled.image.size()});
  if (compiled.unpublishable.empty() && !same_closure()) {
    compiled.unpublishable = "a file appeared in its search path while it was being compiled";
  }
  ++counters_.compiles;
  counters_.compile_us += static_cast<std::uint64_t>(compiled.facts.compile_ms * 1000);
  report_limits(unit.instantiation, compiled);
  auto image = std::make_shared<StoredImage>();
  image->key = unit.made.key;
  record.facts = compile::encode(compiled.facts);
  record.key_text = unit.made.text;
  record.image = compiled.image;
  image->facts = std::move(compiled.facts);
  image->bytes = std::move(compiled.image);
  return {std::move(image), Outcome::compiled, std::move(compiled.unpublishable)};
}

void Pipeline::tell(int32_t kind, const Unit& unit, const Events::Fields& fields) const {
  if (events_)
    events_.tell(kind, unit.instantiation.resolved.specialization.to_string(),
                 unit.instantiation.resolved.arch.name(), fields);
}

void Pipeline::remember(const std::shared_ptr<const StoredImage>& image) {
  State& state = state_.get();
  std::lock_guard lock(state.mutex);
  if (!state.memory.emplace(image->key, image).second) return;
  state.memory_order.push_back(image->key);
  state.memory_bytes += image->bytes.size();
  while (state.memory_bytes > kMemoryBytes && state.memory_order.size() > 1) {
    const auto oldest = state.memory.find(state.memory_order.front());
    state.memory_bytes -= oldest->second->bytes.size();
    state.memory.erase(oldest);
    state.memory_order.pop_front();
  }
}

compile::MadeKey Pipeline::key_of(const source::Instantiation& unit) {
  return prepare(unit, source::Trust::content).made;
}

compile::Compiled Pipeline::compile_alone(const source::Instantiation& unit, bool want_ptx,
                                          compile::Urgency urgency) {
  if (config_.mode() == Mode::sealed)
    throw Error(Errc::not_ready, hint(unit) + ": mode sealed does not compile");
  const Unit prepared = prepare(unit, source::Trust::content);
  auto demand = compile::demand_of(unit, prepared.closure, seconds(config_.compile_deadline_s()));
  const std::atomic<compile::Urgency> as_asked = urgency;
  demand.urgency = &as_asked;
  return compile::compile({prepared.instantiation, prepared.closure, prepared.made, want_ptx}, toolkit(),
                          workers_, demand);
}

}  // namespace kiln::runtime
