#include "runtime/path/path.hpp"

#include <exception>

#include "base/hash.hpp"
#include "base/log.hpp"
#include "compile/compiler/layout_check.hpp"
#include "instantiate/other_archs.hpp"
#include "runtime/path/flight_error.hpp"

namespace kiln::runtime {
namespace {

/// For the message of a refusal: the arch whose image a GPU of the unit's arch would get, although this call takes only
/// its own. Empty when there is none. `find` looks for the image of another arch.
template <class Find>
std::string arch_instead(const Unit& unit, const ObtainOptions& options, const Find& find) noexcept try {
  const source::Instantiation& wanted = unit.instantiation;
  const base::Arch arch = wanted.resolved.arch;
  if (options.any_arch || wanted.which != source::Which::kernel || arch != base::Arch(arch.number)) return {};
  const std::optional<Obtained> found = find();
  return found ? found->image->facts.arch : "";
} catch (const std::exception&) {
  return {};
}

/// True for a fault of this process alone. It says nothing to other processes that waited for the compile.
bool is_local(const std::exception_ptr& error) noexcept try {
  std::rethrow_exception(error);
} catch (const compile::LocalFault&) {
  return true;
} catch (...) {
  return false;
}

}  // namespace

Path::Path(ServiceState& state)
    : state_(state),
      foreign_(state),
      memory_(state.counters),
      disk_(state, foreign_),
      host_lock_(state),
      fleet_(state, foreign_),
      publishing_{OwnedEvents(state.events), Publisher(state.shared_counters)},
      compiler_(state),
      flights_(state, memory_, [this] { compiler_.workers().reconsider(); }) {}

void Path::end_compiles() noexcept {
  host_lock_.stop();
  fleet_.stop();
  compiler_.workers().stop();
}

Path::~Path() {
  end_compiles();
  flights_.wait_for_all();
}

/// No key has the manifest's arguments, so they are compared whichever step served the image.
Obtained Path::obtain(const source::Instantiation& instantiation, const ObtainOptions& options) {
  Obtained out = obtain_image(instantiation, options);
  if (options.arguments == Arguments::as_declared) compile::check_layouts(instantiation, out.image->facts);
  return out;
}

/// The caller's part of the path: steps 1 and 2, then the flight of this key.
Obtained Path::obtain_image(const source::Instantiation& instantiation, const ObtainOptions& options) {
  const bool known = options.files && options.files->source == base::digest_of(instantiation.source);
  auto unit = std::make_shared<const Unit>(
      Unit{known ? *options.files : state_.files.read(instantiation, source::Trust::memo), instantiation});
  if (auto found = find(*unit, options)) return std::move(*found);
  if (!options.permission.compile) {
    if (options.permission.tier && state_.config.has_remote()) return fetch(unit, options);
    if (options.permission.counts_sealed_miss) ++state_.counters.sealed_misses;
    refuse(instantiation, options.permission,
           arch_instead(*unit, options, [&] { return find_other_arch(*unit, options, Counted::no); }));
  }
  if (!state_.config.has_remote()) compiler_.warm_up();  // in a fleet, mostly another node compiles
  if (unit->closure.memoised) {  // a memo may decide a hit; before a compile the files are hashed again
    const Key by_memo = unit->made.key;
    unit = std::make_shared<const Unit>(
        Unit{state_.files.read(instantiation, source::Trust::content), instantiation});
    if (unit->made.key != by_memo) {
      if (auto found = find(*unit, options)) return std::move(*found);
    }
  }
  return fly(unit, options);
}

/// An error of the exact image that is remembered does not keep another arch's image from serving.
std::optional<Obtained> Path::find(const Unit& unit, const ObtainOptions& options) {
  std::optional<Obtained> found;
  std::exception_ptr remembered;
  try {
    if (auto kept = memory_.ask(unit.made.key, options)) return kept;
    found = disk_.find(unit, options, Counted::yes);
  } catch (const Error&) {
    if (!options.any_arch) throw;
    remembered = std::current_exception();
  }
  if (!found && options.any_arch) found = find_other_arch(unit, options, Counted::yes);
  if (!found && remembered) std::rethrow_exception(remembered);
  if (found) memory_.keep(found->image);
  return found;
}

/// The image of another arch, the best first. It is kept under its own key, so that a look for the exact one
/// never returns it.
std::optional<Obtained> Path::find_other_arch(const Unit& unit, const ObtainOptions& options,
                                              Counted counted) {
  for (const source::Instantiation& other : source::for_other_archs(unit.instantiation)) {
    const Unit instead{state_.files.read(other, source::Trust::memo), other};
    std::optional<Obtained> found;
    if (auto kept = memory_.find(instead.made.key); kept && !options.rejected.contains(instead.made.key))
      found = Obtained{std::move(kept), Outcome::memory, {}};
    else
      found = disk_.find(instead, options, Counted::no);
    if (!found) continue;
    if (counted == Counted::yes) {
      ++state_.counters.other_arch;
      count_saved(state_.counters, found->image->facts.compile_ms);
    }
    return found;
  }
  return std::nullopt;
}

/// A call that may not compile takes the tier's image of another arch rather than none. One that may compile
/// makes the exact image for the whole fleet.
Obtained Path::fetch(const std::shared_ptr<const Unit>& unit, const ObtainOptions& options) {
  try {
    return fly(unit, options);
  } catch (const Error& error) {
    if (error.code() != Errc::not_ready || !options.any_arch) throw;
    ObtainOptions instead = options;
    instead.files = nullptr, instead.reports_missing = false;
    for (const source::Instantiation& other : source::for_other_archs(unit->instantiation)) {
      try {
        const auto of_other =
            std::make_shared<const Unit>(Unit{state_.files.read(other, source::Trust::memo), other});
        Obtained found = fly(of_other, instead);
        ++state_.counters.other_arch;
        return found;
      } catch (const Error& absent) {
        if (absent.code() != Errc::not_ready) throw;
      }
    }
    throw;
  }
}

Obtained Path::fly(const std::shared_ptr<const Unit>& unit, const ObtainOptions& options) {
  return flights_.fly(*unit, options, [this, unit, options](Flight& flight) {
    take_off(*unit, options, flight);
    state_.lifetime.save_sometimes();
  });
}

/// The flight's part of the path. The host's lock goes with the record to the publisher, which holds it until
/// the commit. In every other case the lock is released before this returns.
void Path::take_off(const Unit& unit, const ObtainOptions& options, Flight& flight) noexcept {
  std::shared_ptr<cache::Flight> host;
  try {
    flights_.land(unit, flight, obtain_in_flight(unit, options, flight, host));
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    const Lasting lasts = lasting(unit.closure, error);
    if (host && lasts != Lasting::no && !is_local(error))
      host->failed(
          encode_flight_error(error, state_.config.compile_deadline_s(), cache::BoardEntry::kErrorLimit));
    host.reset();
    flights_.crash(unit, flight, error, lasts);
  }
}

/// Steps 3 to 6, and step 2 once more: another process may have published between the caller's look
/// and the lock.
Obtained Path::obtain_in_flight(const Unit& unit, const ObtainOptions& options, Flight& flight,
                                std::shared_ptr<cache::Flight>& host) {
  host = host_lock_.take(unit);
  if (state_.stores.flight_file()) {
    ObtainOptions look = options;
    look.deadline = base::Deadline::never();  // the flight goes on after its caller's deadline
    if (auto found = disk_.find(unit, look, Counted::no)) {
      ++state_.counters.waits;
      count_saved(state_.counters, found->image->facts.compile_ms);
      found->outcome = Outcome::waited;
      return std::move(*found);
    }
  }
  FleetLookup::Answer fleet = fleet_.ask(unit, options, flight, std::max(compiler_.workers().jobs(), 1));
  if (fleet.found) {
    // A fresh node fetches faster than its disk syncs, so work ahead of need waits for the disk.
    const WhenFull when_full = flight.urgency == compile::Urgency::ahead ? WhenFull::wait : options.when_full;
    publish(unit, std::move(fleet.record), {}, std::move(host), when_full, {});
    return std::move(*fleet.found);
  }
  if (!flight.may_compile) refuse(unit.instantiation, options.permission);
  compiler_.warm_up();
  if (host) host->compiling(hint(unit.instantiation));
  cache::Record record;
  Obtained obtained = compiler_.compile(unit, record, flight.urgency);
  // This comes before the callers are answered, so that their flush() knows of it.
  auto afterwards = fleet_.afterwards(std::move(fleet.lease), obtained, options);
  publish(unit, std::move(record), obtained.unpublishable, std::move(host), options.when_full,
          std::move(afterwards));
  return obtained;
}

void Path::publish(const Unit& unit, cache::Record record, const std::string& unpublishable,
                   std::shared_ptr<cache::Flight> host, WhenFull when_full,
                   Publication::Afterwards afterwards) noexcept try {
  if (!unpublishable.empty()) {
    ++state_.counters.unpublishable;
    base::warn_once("unpublishable " + unit.instantiation.unit + unpublishable,
                    hint(unit.instantiation) + " was compiled but not cached: " + unpublishable);
    return;
  }
  if (auto opened = state_.stores.writable()) {
    publisher().hand_over({std::move(record), hint(unit.instantiation), std::move(opened), std::move(host),
                           publishing_.events.shared(), std::move(afterwards)},
                          when_full);
  } else if (afterwards) {
    afterwards(std::move(record));
  }
} catch (...) {
  ++state_.counters.skipped_failed;  // no memory for the queue: the kernel is served all the same
}

bool Path::flush(base::Deadline deadline) { return publisher().flush(deadline) && fleet_.flush(deadline); }

std::optional<Obtained> Path::there(const source::Instantiation& instantiation,
                                    const ObtainOptions& options) {
  auto found = find(Unit{state_.files.read(instantiation, source::Trust::memo), instantiation}, options);
  if (found) compile::check_layouts(instantiation, found->image->facts);
  return found;
}

compile::MadeKey Path::key_of(const source::Instantiation& unit) {
  return state_.files.read(unit, source::Trust::content).made;
}

}  // namespace kiln::runtime
