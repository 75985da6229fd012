#include "runtime/path/fleet.hpp"

#include <cstdint>

#include "base/log.hpp"
#include "base/wire.hpp"
#include "compile/compiler/compiler.hpp"
#include "instantiate/trace_text.hpp"
#include "runtime/state/open_tier.hpp"

namespace kiln::runtime {
namespace {

/// An image with the record's facts and no bytes yet. Null when the facts are damaged or of another version
/// of kiln.
std::shared_ptr<StoredImage> image_of(const cache::Record& record) {
  try {
    auto image = std::make_shared<StoredImage>();
    image->key = record.key;
    image->facts = compile::decode_facts(record.facts);
    return image;
  } catch (const base::Malformed&) {
    return nullptr;
  }
}

}  // namespace

std::shared_ptr<fleet::Tier> FleetLookup::tier() {
  if (!state_.config.has_remote()) return nullptr;
  return tier_.get([&] { return open_tier(state_.config, state_.shared_counters); });
}

void FleetLookup::report_missing(std::string row) {
  if (const auto tier = this->tier(); tier && !tier->can_write()) tier->report_missing(std::move(row));
}

bool FleetLookup::flush(base::Deadline deadline) {
  const auto* tier = tier_.made();
  return !tier || !*tier || (*tier)->flush(deadline);
}

void FleetLookup::stop() noexcept {
  stopped_ = true;
  if (const auto* tier = tier_.made(); tier && *tier) (*tier)->stop();
}

void FleetLookup::read(kiln_stats& out) {
  const auto* made = tier_.made();
  if (!made || !*made) return;
  out.remote_state = KILN_REMOTE_WORKS;
  for (const fleet::ServerStatus& server : (*made)->backend().health()) {
    ++out.remote_servers;
    out.remote_bytes_in += server.bytes_in, out.remote_bytes_out += server.bytes_out;
    const auto ms = [](std::chrono::microseconds us) { return static_cast<double>(us.count()) / 1000; };
    out.remote_p50_ms = std::max(out.remote_p50_ms, ms(server.round_trip_p50));
    out.remote_p99_ms = std::max(out.remote_p99_ms, ms(server.round_trip_p99));
    const std::int32_t state = server.breaker == fleet::Breaker::State::open      ? KILN_REMOTE_BROKEN
                               : server.breaker == fleet::Breaker::State::probing ? KILN_REMOTE_PROBING
                                                                                  : KILN_REMOTE_WORKS;
    out.remote_state = std::max(out.remote_state, state);
  }
}

FleetLookup::Answer FleetLookup::ask(const Unit& unit, const ObtainOptions& options, const Flight& flight,
                                     int most_leases) {
  Answer out;
  if (!options.permission.tier) return out;
  const auto tier = this->tier();
  if (!tier) return out;
  const bool own = state_.files.toolkit().has_compiler() && !options.rejected.contains(unit.made.key);
  // A unit that can never be published has no record on any node, so no call waits for one.
  const bool unpublishable =
      own && !compile::unpublishable_beforehand(unit.closure, state_.files.toolkit()).empty();
  bool absent = true;
  if (own && !unpublishable) {
    out.found = find_own(*tier, unit, flight, most_leases, out, absent);
    if (out.found) return out;
  }
  if (foreign_.are_taken(unit, options.permission)) {
    if (auto foreign = find_foreign(*tier, unit, options, out.record)) {
      ++state_.counters.foreign_toolchain, count_saved(state_.counters, foreign->image->facts.compile_ms);
      out.lease.reset();
      out.found = std::move(foreign);
      return out;
    }
  }
  if (absent && !unpublishable && options.rejected.empty() && options.reports_missing)
    report_missing(source::trace_row(unit.instantiation.resolved));
  return out;
}

/// The record of exactly this key, or a lease to make it. `absent`: the tier said that it has no such record.
std::optional<Obtained> FleetLookup::find_own(fleet::Tier& tier, const Unit& unit, const Flight& flight,
                                              int most_leases, Answer& out, bool& absent) {
  const source::Instantiation& instantiation = unit.instantiation;
  std::shared_ptr<StoredImage> image;
  std::optional<Stopwatch> waiting;
  std::unique_ptr<cache::ShownWaiter> shown;
  fleet::Tier::Reply reply = tier.ask(
      {.key = unit.made.key,
       .key_text = unit.made.text,
       .acceptable = [&](const cache::Record& record) { return (image = image_of(record)) != nullptr; },
       .may_compile = flight.may_compile,
       .in_a_hurry = flight.urgency == compile::Urgency::caller,
       .most_leases = most_leases,
       .cancelled = &stopped_,
       .on_wait =
           [&] {
             waiting.emplace();
             tell(state_.events, KILN_EVENT_WAIT_STARTED, instantiation);
             if (const auto file = state_.stores.flight_file())
               shown = file->show_waiting(cache::WaitFor::remote, hint(instantiation), unit.made.key);
           }});
  if (waiting) tell(state_.events, KILN_EVENT_WAIT_FINISHED, instantiation, {.milliseconds = waiting->ms()});
  if (stopped_)
    throw Error(Errc::deadline, "the service was destroyed while it waited for " + hint(instantiation));
  out.lease = std::move(reply.lease);
  absent = reply.absent;
  if (!reply.entry) return std::nullopt;
  image->bytes = reply.entry->image;
  out.record = std::move(*reply.entry);
  ++state_.counters.remote_hits, count_saved(state_.counters, image->facts.compile_ms);
  base::debug(hint(instantiation) + " came from the fleet's tier, key " + unit.made.key.hex());
  return Obtained{std::move(image), Outcome::remote, {}};
}

/// Looks for an entry of this specialisation that another toolchain made. The tier's rows name these
/// toolchains (docs/internals/fleet.md, "Entries"). Only the first section of the key text was known before,
/// so the key is made again from the whole text.
std::optional<Obtained> FleetLookup::find_foreign(fleet::Tier& tier, const Unit& unit,
                                                  const ObtainOptions& options, cache::Record& record) {
  std::shared_ptr<const StoredImage> image;
  const auto taken = [&](const cache::Record& found) {
    if (!(compile::key_of_text(found.key_text) == found.key)) return false;
    return (image = ForeignRecords::image_of(unit, found)) != nullptr;
  };
  auto entry = tier.find(
      {.specialisation = unit.made.key.specialisation,
       .text = unit.made.specialisation_text(),
       .wanted = [&](const Key& key) { return !options.rejected.contains(key) && foreign_.allows(key); },
       .acceptable = taken});
  if (!entry) return std::nullopt;
  record = std::move(*entry);
  return Obtained{std::move(image), Outcome::remote, {}};
}

Publication::Afterwards FleetLookup::afterwards(std::shared_ptr<fleet::HeldLease> lease,
                                                const Obtained& obtained, const ObtainOptions& options) {
  if (lease) lease->compiled();
  const auto tier = options.permission.tier ? this->tier() : nullptr;
  if (!tier || !tier->writes() || !obtained.unpublishable.empty() || !options.rejected.empty()) return {};
  const auto full = options.when_full == WhenFull::wait ? fleet::Tier::Full::wait : fleet::Tier::Full::drop;
  return [tier, lease = std::move(lease), full,
          labels = labels_of(obtained.image->facts)](cache::Record&& record) mutable {
    tier->publish(envelope_of(std::move(record), labels), std::move(labels.about), std::move(lease), full);
  };
}

}  // namespace kiln::runtime
