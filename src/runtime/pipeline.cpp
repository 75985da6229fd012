#include "runtime/pipeline_unit.hpp"

#include <unistd.h>

#include <thread>

#include "base/log.hpp"
#include "runtime/flight_error.hpp"
#include "runtime/places.hpp"
#include "toolchain/locate.hpp"

namespace kiln::runtime {
namespace {

/// Images kept for other contexts and for stores that cannot be written; the oldest go first.
constexpr std::size_t kMemoryBytes = std::size_t{256} << 20;
/// A waiter gives the holder of a flight lock this much longer than a compile may take.
constexpr auto kFlightGrace = std::chrono::seconds(10);

base::Clock::duration seconds(double s) {
  return std::chrono::duration_cast<base::Clock::duration>(std::chrono::duration<double>(s));
}

/// Whether asking again with the same key would fail again: the source's own fault, and nothing at play that
/// the key does not cover and that may be mended without another key.
bool is_final(const source::Closure& closure, const std::exception_ptr& error) noexcept try {
  std::rethrow_exception(error);
} catch (const Error& e) {
  if (e.code() != Errc::compile_failed && e.code() != Errc::unsupported_arch) return false;
  return !closure.computed && !closure.toolkit_computed && closure.computed_probes.empty() &&
         !closure.changed();
} catch (...) {
  return false;
}

/// A kernel that breaks its manifest's [limits] is served, and said to.
void report_limits(const source::Limits& limits, const compile::Facts& facts) {
  const auto report = [&](const std::optional<std::int64_t>& limit, double value, const char* what) {
    if (!limit || value <= static_cast<double>(*limit)) return;
    base::warn(facts.specialization().to_string() + " for " + facts.arch +
               " breaks its manifest's limits: " + what + ' ' +
               std::to_string(static_cast<std::int64_t>(value)) + ", allowed " + std::to_string(*limit));
  };
  report(limits.max_spill_bytes, facts.spill_store_bytes + facts.spill_load_bytes, "spilled bytes");
  report(limits.performance_warnings, static_cast<double>(facts.performance_warnings.size()),
         "performance warnings");
  report(limits.compile_seconds, facts.compile_ms / 1000, "seconds to compile");
}

}  // namespace

struct Pipeline::Flight {
  std::promise<Obtained> promise;
  std::shared_future<Obtained> result = promise.get_future().share();
};

std::string default_memo_file() { return "/dev/shm/kiln-" + std::to_string(::geteuid()) + ".headers"; }

Pipeline::Pipeline(const Config& config, const std::string& memo_file)
    : config_(config), scans_(memo_file), workers_(config.get("worker"), config.jobs()) {}

Pipeline::~Pipeline() {
  if (generation_ != cache::process_generation()) return;  // a forked child has none of the flights' threads
  leaving_ = true;
  std::unique_lock lock(mutex_);
  landed_.wait(lock, [&] { return running_ == 0; });
}

const toolchain::Toolkit& Pipeline::toolkit() {
  std::call_once(toolkit_once_, [&] {
    toolkit_ = toolchain::locate_toolkit({config_.get("cuda_home"), !config_.hermetic()});
  });
  return toolkit_;
}

std::shared_ptr<cache::Store> Pipeline::store() {
  std::call_once(store_once_, [&] { store_ = open_store(config_); });
  return store_;
}

std::shared_ptr<cache::FlightFile> Pipeline::flight_file() {
  std::call_once(flight_once_, [&] {
    if (!store() || !store()->writable()) return;
    try {
      flight_file_ = cache::FlightFile::open(
          {.store_identity = store()->identity(), .store_place = store()->directory() + "/v1"});
    } catch (const Error& error) {
      base::warn_once(
          "flight", std::string(error.what()) + "; processes of this host may compile the same kernel twice");
    }
  });
  return flight_file_;
}

std::vector<cache::BoardEntry> Pipeline::board() {
  const auto file = flight_file();
  return file ? file->board() : std::vector<cache::BoardEntry>();
}

Pipeline::Unit Pipeline::prepare(const source::Instantiation& unit, source::Trust trust) {
  const source::Template& origin = *unit.origin;
  source::SearchPath search;
  if (!origin.directory.empty()) search.project.push_back(origin.directory);
  for (const std::string& directory : origin.manifest.compile.include_dirs)
    search.project.push_back(origin.directory + '/' + directory);
  for (std::string& directory : config_.include_directories()) search.project.push_back(std::move(directory));
  if (!config_.installed_templates().empty()) search.project.push_back(config_.installed_templates());
  search.toolkit = toolkit().include_dirs;

  std::vector<std::string> extra = origin.manifest.compile.preinclude;
  const auto& more = origin.manifest.compile.extra_includes;
  extra.insert(extra.end(), more.begin(), more.end());
  std::string text;  // what [compile] define puts in front of the source may name headers, too
  for (const auto& [name, value] : origin.manifest.compile.define)
    text += "#define " + name + ' ' + value + '\n';
  text += unit.source;
  Unit out{unit, source::scan_closure(text, extra, search, scans_, trust), {}};
  out.made = compile::make_key(out.instantiation, out.closure, toolkit());
  scans_.save();
  return out;
}

std::optional<Obtained> Pipeline::from_memory(const Key& key, const ObtainOptions& options) {
  std::lock_guard lock(mutex_);
  if (const auto found = memory_.find(key); found != memory_.end() && !options.rejected.contains(key)) {
    ++counters_.memory_hits;
    return Obtained{found->second, Outcome::memory, {}};
  }
  if (const auto found = refused_.find(key); found != refused_.end()) {
    ++counters_.remembered_failures;
    std::rethrow_exception(found->second);
  }
  return std::nullopt;
}

std::optional<Outcome> Pipeline::look(const source::Instantiation& unit) {
  const Unit prepared = prepare(unit, source::Trust::memo);
  {
    std::lock_guard lock(mutex_);
    if (memory_.contains(prepared.made.key)) return Outcome::memory;
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

Obtained Pipeline::obtain(const source::Instantiation& instantiation, const ObtainOptions& options) {
  auto unit = std::make_shared<const Unit>(prepare(instantiation, source::Trust::memo));
  if (auto found = find(*unit, options)) return std::move(*found);
  if (!options.may_compile) {
    throw Error(Errc::not_ready,
                hint(instantiation) + " is not in the cache, and mode sealed does not compile; prewarm it");
  }
  if (unit->closure.memoised) {  // a memo may decide a hit; what is compiled is hashed again
    const Key by_memo = unit->made.key;
    unit = std::make_shared<const Unit>(prepare(instantiation, source::Trust::content));
    if (unit->made.key != by_memo) {
      if (auto found = find(*unit, options)) return std::move(*found);
    }
  }
  return fly(std::move(unit), options);
}

/// Joins the flight of this key or starts one. The flight runs on a thread of its own, so that each waiter
/// keeps his own deadline and publishing happens after everybody has been answered.
Obtained Pipeline::fly(std::shared_ptr<const Unit> unit, const ObtainOptions& options) {
  std::shared_ptr<Flight> flight;
  bool joined = true;
  {
    std::lock_guard lock(mutex_);
    auto& slot = flights_[unit->made.key];
    if (!slot) {
      // Landed between our look in memory and now.
      if (const auto found = memory_.find(unit->made.key);
          found != memory_.end() && !options.rejected.contains(unit->made.key)) {
        Obtained out{found->second, Outcome::waited, {}};
        flights_.erase(unit->made.key);
        ++counters_.waits;
        return out;
      }
      slot = std::make_shared<Flight>();
      joined = false;
      ++running_;
    }
    flight = slot;
  }
  if (joined) {
    ++counters_.waits;
  } else {
    try {
      std::thread([this, unit, options, flight] { run_flight(*unit, options, *flight); }).detach();
    } catch (const std::system_error&) {
      run_flight(*unit, options, *flight);  // no thread to be had: in this one
    }
  }
  const bool ready = options.deadline.at() == base::Clock::time_point::max()
                         ? (flight->result.wait(), true)
                         : flight->result.wait_until(options.deadline.at()) == std::future_status::ready;
  if (!ready)
    throw Error(Errc::deadline, "the deadline passed while " + hint(unit->instantiation) +
                                    " was being compiled (it goes on)");
  Obtained out = flight->result.get();
  if (joined && out.outcome == Outcome::compiled) out.outcome = Outcome::waited;
  return out;
}

void Pipeline::run_flight(const Unit& unit, const ObtainOptions& options, Flight& flight) noexcept {
  take_off(unit, options, flight);
  // Last: the pipeline may be gone the moment that its destructor sees zero.
  const std::lock_guard lock(mutex_);
  --running_;
  landed_.notify_all();
}

/// The host's lock on this key; null: compile without it. Throws what the holder's compile failed with, when
/// it was waited for.
std::shared_ptr<cache::Flight> Pipeline::take_host_lock(const Unit& unit) {
  using End = cache::FlightFile::End;
  const auto file = flight_file();
  if (!file) return nullptr;
  cache::FlightFile::Taken taken;
  const auto patience = seconds(config_.compile_deadline_s()) + kFlightGrace;
  try {
    taken = file->take(unit.made.key, base::Deadline::after(patience), &leaving_);
  } catch (const Error& error) {
    base::warn_once("flight", std::string(error.what()) + "; compiling without it");
    return nullptr;
  }
  switch (taken.end) {
    case End::taken:
      break;
    case End::timed_out:
      ++counters_.flight_timeouts;
      break;
    case End::left:
      ++counters_.convoy_left;
      break;
    case End::failed:
      if (auto error = decode_flight_error(taken.error)) {
        ++counters_.waits;
        std::rethrow_exception(error);
      }
      break;
    case End::cancelled:
      throw Error(Errc::deadline, "the service is gone: " + hint(unit.instantiation) + " was not waited for");
  }
  return std::move(taken.flight);
}

/// The host's lock goes with the record to the publisher, which holds it until the commit; in every other
/// case it is back before this returns.
void Pipeline::take_off(const Unit& unit, const ObtainOptions& options, Flight& flight) noexcept {
  std::shared_ptr<cache::Flight> host;
  try {
    host = take_host_lock(unit);
    if (flight_file()) {
      ObtainOptions look = options;
      look.deadline = base::Deadline::never();  // the caller's own: he may have gone, the flight goes on
      // Look again even when nobody was waited for: another process may have published between our look and
      // our lock.
      if (auto found = from_disk(unit, look, false)) {
        ++counters_.waits;
        found->outcome = Outcome::waited;
        land(unit, flight, *found);
        return;
      }
    }
    if (host) host->compiling(hint(unit.instantiation));
    cache::Record record;
    const Obtained obtained = compile_now(unit, record);
    // Before the callers are answered, so that their flush() knows of it.
    publish(unit, std::move(record), obtained.unpublishable, std::move(host), options.when_full);
    land(unit, flight, obtained);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    const bool final_error = is_final(unit.closure, error);
    if (host && final_error) host->failed(encode_flight_error(error, cache::BoardEntry::kErrorLimit));
    host.reset();
    crash(unit, flight, error, final_error);
  }
}

Obtained Pipeline::compile_now(const Unit& unit, cache::Record& record) {
  compile::Compiled compiled;
  try {
    compiled = compile::compile({unit.instantiation, unit.closure, unit.made}, toolkit(), workers_,
                                base::Deadline::after(seconds(config_.compile_deadline_s())));
  } catch (...) {
    ++counters_.compile_failures;
    throw;
  }
  if (compiled.unpublishable.empty() &&
      prepare(unit.instantiation, source::Trust::content).made.text != unit.made.text) {
    compiled.unpublishable = "a file appeared in its search path while it was being compiled";
  }
  ++counters_.compiles;
  counters_.compile_us += static_cast<std::uint64_t>(compiled.facts.compile_ms * 1000);
  report_limits(unit.instantiation.origin->manifest.limits, compiled.facts);
  auto image = std::make_shared<StoredImage>();
  image->key = unit.made.key;
  record.facts = compile::encode(compiled.facts);
  record.key_text = unit.made.text;
  record.image = compiled.image;
  image->facts = std::move(compiled.facts);
  image->bytes = std::move(compiled.image);
  return {std::move(image), Outcome::compiled, std::move(compiled.unpublishable)};
}

void Pipeline::land(const Unit& unit, Flight& flight, const Obtained& obtained) noexcept {
  // What cannot be published is not kept either: the key does not cover it, so the next ask must compile
  // again.
  if (obtained.unpublishable.empty()) remember(obtained.image);
  {
    std::lock_guard lock(mutex_);
    flights_.erase(unit.made.key);
  }
  flight.promise.set_value(obtained);
}

void Pipeline::crash(const Unit& unit, Flight& flight, std::exception_ptr error, bool is_final) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (is_final) refused_[unit.made.key] = error;
    flights_.erase(unit.made.key);
  }
  flight.promise.set_exception(std::move(error));
}

void Pipeline::remember(const std::shared_ptr<const StoredImage>& image) {
  std::lock_guard lock(mutex_);
  if (!memory_.emplace(image->key, image).second) return;
  memory_order_.push_back(image->key);
  memory_bytes_ += image->bytes.size();
  while (memory_bytes_ > kMemoryBytes && memory_order_.size() > 1) {
    const auto oldest = memory_.find(memory_order_.front());
    memory_bytes_ -= oldest->second->bytes.size();
    memory_.erase(oldest);
    memory_order_.pop_front();
  }
}

compile::Compiled Pipeline::compile_alone(const source::Instantiation& unit, bool want_ptx) {
  if (config_.mode() == Mode::sealed)
    throw Error(Errc::not_ready, hint(unit) + ": mode sealed does not compile");
  const Unit prepared = prepare(unit, source::Trust::content);
  return compile::compile({prepared.instantiation, prepared.closure, prepared.made, want_ptx}, toolkit(),
                          workers_, base::Deadline::after(seconds(config_.compile_deadline_s())));
}

}  // namespace kiln::runtime
