#include "runtime/pipeline.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <thread>

#include "base/log.hpp"
#include "base/text.hpp"
#include "base/wire.hpp"
#include "runtime/places.hpp"
#include "toolchain/locate.hpp"

namespace kiln::runtime {
namespace {

/// Images kept for other contexts and for stores that cannot be written; the oldest go first.
constexpr std::size_t kMemoryBytes = std::size_t{256} << 20;
/// A waiter gives the holder of a flight lock this much longer than a compile may take.
constexpr auto kFlightGrace = std::chrono::seconds(10);
/// A read that cannot pass the gate for so long is a miss: a stopped writer of another process must not stop this one.
constexpr auto kReadPatience = std::chrono::seconds(5);

base::Clock::duration seconds(double s) {
  return std::chrono::duration_cast<base::Clock::duration>(std::chrono::duration<double>(s));
}

std::string hint(const source::Instantiation& unit) {
  return unit.resolved.specialization.to_string() + " for " + unit.resolved.arch.name();
}

/// "13.0" as a number to sort by.
double version_number(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

struct Pipeline::Unit {
  source::Instantiation instantiation;
  source::Closure closure;
  compile::MadeKey made;
};

struct Pipeline::Flight {
  std::promise<Obtained> promise;
  std::shared_future<Obtained> result = promise.get_future().share();
};

std::string default_memo_file() { return "/dev/shm/kiln-" + std::to_string(::geteuid()) + ".headers"; }

Pipeline::Pipeline(const Config& config, const std::string& memo_file)
    : config_(config), host_pid_(::getpid()), scans_(memo_file), workers_(config.get("worker"), config.jobs()) {}

Pipeline::~Pipeline() { flush(); }

void Pipeline::flush() {
  if (::getpid() != host_pid_) return;  // a forked child has none of the threads that it would wait for
  std::unique_lock lock(mutex_);
  landed_.wait(lock, [&] { return running_ == 0; });
}

const toolchain::Toolkit& Pipeline::toolkit() {
  std::call_once(toolkit_once_, [&] { toolkit_ = toolchain::locate_toolkit({config_.get("cuda_home"), !config_.hermetic()}); });
  return toolkit_;
}

std::shared_ptr<cache::Store> Pipeline::store() {
  std::call_once(store_once_, [&] { store_ = open_store(config_); });
  return store_;
}

cache::FlightFile* Pipeline::flight_file() {
  std::call_once(flight_once_, [&] {
    if (!store() || !store()->writable()) return;
    try {
      flight_file_ = std::make_unique<cache::FlightFile>("/dev/shm", store()->identity());
    } catch (const Error& error) {
      base::warn_once("flight", std::string(error.what()) + "; processes of this host may compile the same kernel twice");
    }
  });
  return flight_file_.get();
}

Pipeline::Unit Pipeline::prepare(const source::Instantiation& unit, source::Trust trust) {
  const source::Template& origin = *unit.origin;
  source::SearchPath search;
  if (!origin.directory.empty()) search.project.push_back(origin.directory);
  for (const std::string& directory : origin.manifest.compile.include_dirs) search.project.push_back(origin.directory + '/' + directory);
  for (std::string& directory : config_.include_directories()) search.project.push_back(std::move(directory));
  if (!config_.installed_templates().empty()) search.project.push_back(config_.installed_templates());
  search.toolkit = toolkit().include_dirs;

  std::vector<std::string> extra = origin.manifest.compile.preinclude;
  const auto& more = origin.manifest.compile.extra_includes;
  extra.insert(extra.end(), more.begin(), more.end());
  Unit out{unit, source::scan_closure(unit.source, extra, search, scans_, trust), {}};
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

std::optional<Obtained> Pipeline::from_disk(const Unit& unit, const ObtainOptions& options, bool count_misses) {
  const auto opened = store();
  if (!opened) {
    if (count_misses) ++counters_.miss_no_store;
    return std::nullopt;
  }
  if (!options.rejected.contains(unit.made.key) && toolkit().has_compiler()) {
    const auto patience = earlier(options.deadline, base::Deadline::after(kReadPatience));
    cache::GetResult got = opened->get(unit.made.key, unit.made.text, patience);
    if (got.record) {
      try {
        auto image = std::make_shared<StoredImage>();
        image->key = unit.made.key;
        image->facts = compile::decode_facts(got.record->facts);
        image->bytes = std::move(got.record->image);
        if (count_misses) ++counters_.disk_hits;
        return Obtained{std::move(image), Outcome::disk, {}};
      } catch (const base::Malformed&) {
        got.miss = cache::Miss::damaged;  // facts of another version of kiln
      }
    }
    if (count_misses) {
      switch (got.miss) {
        case cache::Miss::absent: ++counters_.miss_absent; break;
        case cache::Miss::damaged: ++counters_.miss_damaged; break;
        case cache::Miss::other_key_text: ++counters_.miss_other_key_text; break;
        case cache::Miss::gate_timeout: ++counters_.miss_gate_timeout; break;
        case cache::Miss::unreadable: ++counters_.miss_unreadable; break;
      }
    }
  }
  auto foreign = from_foreign(unit, options);
  if (foreign && count_misses) ++counters_.foreign_toolchain;
  return foreign;
}

/// DESIGN 4: on a sealed service or a slim host, records of the same specialisation made by another toolchain, by NVRTC version,
/// then age; never one whose project files were reached only through the toolkit.
std::optional<Obtained> Pipeline::from_foreign(const Unit& unit, const ObtainOptions& options) {
  const std::string& rule = config_.get("toolchain");
  const bool slim = !toolkit().has_compiler() || (toolkit().include_dirs.empty() && !unit.closure.missing.empty());
  if (rule == "own" || (rule.empty() && !slim && options.may_compile)) return std::nullopt;

  std::vector<std::shared_ptr<StoredImage>> candidates;
  for (auto& [key, record] : store()->find(unit.made.key.specialisation, earlier(options.deadline, base::Deadline::after(kReadPatience)))) {
    if (options.rejected.contains(key)) continue;
    if (!rule.empty() && rule != "any" && key.toolchain.hex().compare(0, rule.size(), rule) != 0) continue;
    const auto section = compile::toolchain_section(record.key_text);
    if (std::string_view(record.key_text).substr(0, section) != unit.made.specialisation_text()) continue;
    try {
      auto image = std::make_shared<StoredImage>();
      image->key = key;
      image->facts = compile::decode_facts(record.facts);
      image->bytes = std::move(record.image);
      if (!image->facts.project_header_through_toolkit) candidates.push_back(std::move(image));
    } catch (const base::Malformed&) {
    }
  }
  if (candidates.empty()) return std::nullopt;
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    const double va = version_number(a->facts.nvrtc_version), vb = version_number(b->facts.nvrtc_version);
    return va != vb ? va > vb : a->facts.created_s > b->facts.created_s;
  });
  return Obtained{candidates.front(), Outcome::disk, {}};
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
    throw Error(Errc::not_ready, hint(instantiation) + " is not in the cache, and mode sealed does not compile; prewarm it");
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

/// Joins the flight of this key or starts one. The flight runs on a thread of its own, so that each waiter keeps his own deadline
/// and publishing happens after everybody has been answered.
Obtained Pipeline::fly(std::shared_ptr<const Unit> unit, const ObtainOptions& options) {
  std::shared_ptr<Flight> flight;
  bool joined = true;
  {
    std::lock_guard lock(mutex_);
    auto& slot = flights_[unit->made.key];
    if (!slot) {
      // Landed between our look in memory and now.
      if (const auto found = memory_.find(unit->made.key); found != memory_.end() && !options.rejected.contains(unit->made.key)) {
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
  if (!ready) throw Error(Errc::deadline, "the deadline passed while " + hint(unit->instantiation) + " was being compiled (it goes on)");
  Obtained out = flight->result.get();
  if (joined && out.outcome == Outcome::compiled) out.outcome = Outcome::waited;
  return out;
}

void Pipeline::run_flight(const Unit& unit, const ObtainOptions& options, Flight& flight) noexcept {
  cache::FlightFile::Taken taken;
  try {
    if (cache::FlightFile* file = flight_file()) {
      const auto patience = seconds(config_.compile_deadline_s()) + kFlightGrace;
      try {
        taken = file->take(unit.made.key, base::Deadline::after(patience));
      } catch (const Error& error) {
        base::warn_once("flight", std::string(error.what()) + "; compiling without it");
      }
      ObtainOptions look = options;
      look.deadline = base::Deadline::never();  // the caller's own: he may have gone, the flight goes on
      // Look again even when nobody was waited for: another process may have published between our look and our lock.
      if (auto found = from_disk(unit, look, false)) {
        ++counters_.waits;
        found->outcome = Outcome::waited;
        land(unit, flight, &*found, nullptr);
        return;
      }
    }
    cache::Record record;
    const Obtained obtained = compile_now(unit, record);
    const std::string unpublishable = obtained.unpublishable;
    // From `land` on the flight may be forgotten; the pipeline itself waits in its destructor until running_ is zero.
    {
      std::lock_guard lock(mutex_);
      ++running_;
    }
    land(unit, flight, &obtained, nullptr);
    publish(unit, record, unpublishable);
    taken.flight.reset();  // held until the commit
    std::lock_guard lock(mutex_);
    --running_;
    landed_.notify_all();
  } catch (...) {
    land(unit, flight, nullptr, std::current_exception());
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
  ++counters_.compiles;
  counters_.compile_us += static_cast<std::uint64_t>(compiled.facts.compile_ms * 1000);
  auto image = std::make_shared<StoredImage>();
  image->key = unit.made.key;
  record.facts = compile::encode(compiled.facts);
  record.key_text = unit.made.text;
  record.image = compiled.image;
  image->facts = std::move(compiled.facts);
  image->bytes = std::move(compiled.image);
  return {std::move(image), Outcome::compiled, std::move(compiled.unpublishable)};
}

void Pipeline::land(const Unit& unit, Flight& flight, const Obtained* obtained, std::exception_ptr error) noexcept {
  bool is_final = false;  // the source's own fault: the same bytes will fail again
  if (error) {
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      is_final = e.code() == Errc::compile_failed || e.code() == Errc::unsupported_arch;
    } catch (...) {
    }
  }
  // What cannot be published is not kept either: the key does not cover it, so the next ask must compile again.
  if (obtained && obtained->unpublishable.empty()) remember(obtained->image);
  {
    std::lock_guard lock(mutex_);
    if (is_final) refused_[unit.made.key] = error;
    flights_.erase(unit.made.key);
  }
  if (error) flight.promise.set_exception(error);
  else flight.promise.set_value(*obtained);
  std::lock_guard lock(mutex_);
  --running_;
  landed_.notify_all();
}

void Pipeline::publish(const Unit& unit, const cache::Record& record, const std::string& unpublishable) noexcept try {
  if (!unpublishable.empty()) {
    ++counters_.unpublishable;
    base::warn_once("unpublishable " + unit.instantiation.unit + unpublishable,
                    hint(unit.instantiation) + " was compiled but not cached: " + unpublishable);
    return;
  }
  const auto opened = store();
  if (!opened) return;
  const cache::PutResult result = opened->put(unit.made.key, record);
  if (result.put == cache::Put::stored) ++counters_.puts;
  else if (result.put == cache::Put::present) ++counters_.puts_present;
  else {
    ++counters_.puts_skipped;
    base::warn_once("put " + std::string(to_string(result.put)),
                    "could not cache " + hint(unit.instantiation) + " in '" + opened->directory() + "': " + result.detail);
  }
} catch (...) {
  ++counters_.puts_skipped;  // out of memory while composing a warning: the kernel was served
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
  const Unit prepared = prepare(unit, source::Trust::content);
  return compile::compile({prepared.instantiation, prepared.closure, prepared.made, want_ptx}, toolkit(), workers_,
                          base::Deadline::after(seconds(config_.compile_deadline_s())));
}

}  // namespace kiln::runtime
