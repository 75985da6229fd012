// Step 4 of the path: the fleet's tier, asked behind the host's lock, so by one process of a host; and what
// is compiled here on its way to it.
#include "runtime/pipeline_tier.hpp"

#include "base/log.hpp"
#include "base/wire.hpp"
#include "runtime/tier.hpp"
#include "source/record_text.hpp"

namespace kiln::runtime {
namespace {

/// The entry as a record, without its image, and the image with its facts; null when those are damaged or of
/// another version of kiln.
std::shared_ptr<const StoredImage> image_of(const fleet::Entry& entry) {
  try {
    auto image = std::make_shared<StoredImage>();
    image->key = entry.key;
    image->facts = compile::decode_facts(entry.facts);
    return image;
  } catch (const base::Malformed&) {
    return nullptr;
  }
}

}  // namespace

std::shared_ptr<fleet::Tier> Pipeline::tier() {
  if (!config_.has_remote()) return nullptr;
  return tier_.get([&] { return open_tier(config_, shared_counters_); });
}

void Pipeline::report_missing(std::string row) {
  if (const auto tier = this->tier(); tier && !tier->can_write()) tier->report_missing(std::move(row));
}

bool Pipeline::flush(base::Deadline deadline) {
  if (!publisher_.flush(deadline)) return false;
  const auto* tier = tier_.made();
  return !tier || !*tier || (*tier)->flush(deadline);
}

void Pipeline::read_tier(kiln_stats& out) {
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

/// What it has is believed as a record of the disk is: it is signed, its key text is the one that was asked
/// for, its facts can be read. Otherwise, and when the server fails, it is a miss.
Pipeline::FromTier Pipeline::ask_tier(const Unit& unit, const ObtainOptions& options, const Flight& flight) {
  FromTier out;
  if (options.tier == AskTier::no) return out;
  const auto tier = this->tier();
  if (!tier) return out;
  std::shared_ptr<const StoredImage> image;
  const bool own = toolkit().has_compiler() && !options.rejected.contains(unit.made.key);
  // What no record is ever made of, no other node has either, and nobody shall wait for it.
  const bool unpublishable = own && !compile::unpublishable_beforehand(unit.closure, toolkit()).empty();
  bool absent = true;
  if (own && !unpublishable) {
    std::optional<Stopwatch> waiting;
    std::unique_ptr<cache::ShownWaiter> shown;
    fleet::Tier::Reply reply = tier->ask(
        {.key = unit.made.key,
         .key_text = unit.made.text,
         .acceptable = [&](const fleet::Entry& entry) { return (image = image_of(entry)) != nullptr; },
         .may_compile = flight.may_compile,
         .in_a_hurry = flight.urgency == compile::Urgency::caller,
         .most_leases = std::max(workers_.jobs(), 1),
         .cancelled = &leaving_,
         .on_wait =
             [&] {
               waiting.emplace();
               tell(KILN_EVENT_WAIT_STARTED, unit);
               if (const auto file = flight_file())
                 shown = file->show_waiting(cache::WaitFor::remote, hint(unit.instantiation), unit.made.key);
             }});
    if (waiting) tell(KILN_EVENT_WAIT_FINISHED, unit, {.milliseconds = waiting->ms()});
    if (leaving_)
      throw Error(Errc::deadline, "the service is gone: " + hint(unit.instantiation) + " was not waited for");
    out.lease = std::move(reply.lease);
    absent = reply.absent;
    if (reply.entry) {
      auto filled = std::make_shared<StoredImage>(*image);
      filled->bytes = reply.entry->image;
      out.record = {std::move(reply.entry->facts), std::move(reply.entry->key_text),
                    std::move(reply.entry->image)};
      out.found = Obtained{std::move(filled), Outcome::remote, {}};
      ++counters_.remote_hits, counters_.saved(image->facts.compile_ms);
      base::debug(hint(unit.instantiation) + " came from the fleet's tier, key " + unit.made.key.hex());
      return out;
    }
  }
  if (takes_foreign(unit, options)) {
    if (auto foreign = from_tier_foreign(*tier, unit, options, out.record)) {
      ++counters_.foreign_toolchain, counters_.saved(foreign->image->facts.compile_ms);
      out.lease.reset();
      out.found = std::move(foreign);
      return out;
    }
  }
  if (absent && !unpublishable && options.rejected.empty())
    report_missing(source::record_row(unit.instantiation.resolved));
  return out;
}

/// DESIGN 4, over the rows that say which toolchains have this specialisation. Only the key text's first
/// section was known before: the key is made again from the whole of it.
std::optional<Obtained> Pipeline::from_tier_foreign(fleet::Tier& tier, const Unit& unit,
                                                    const ObtainOptions& options, cache::Record& record) {
  std::shared_ptr<const StoredImage> image;
  const auto taken = [&](const fleet::Entry& entry) {
    cache::Record one{entry.facts, entry.key_text, entry.image};
    if (!(compile::key_of_text(entry.key_text) == entry.key)) return false;
    return (image = as_foreign(unit, entry.key, one)) != nullptr;
  };
  auto entry = tier.find(
      {.specialisation = unit.made.key.specialisation,
       .text = unit.made.specialisation_text(),
       .wanted =
           [&](const Key& key) { return !options.rejected.contains(key) && is_of_chosen_toolchain(key); },
       .acceptable = taken});
  if (!entry) return std::nullopt;
  record = {std::move(entry->facts), std::move(entry->key_text), std::move(entry->image)};
  return Obtained{std::move(image), Outcome::remote, {}};
}

/// The lease goes with it, and ends when the fleet has it or never will.
Publication::Afterwards Pipeline::to_tier(const Unit& unit, std::shared_ptr<fleet::HeldLease> lease,
                                          const Obtained& obtained, const ObtainOptions& options) {
  if (lease) lease->compiled();
  const auto tier = options.tier == AskTier::yes ? this->tier() : nullptr;
  if (!tier || !tier->writes() || !obtained.unpublishable.empty() || !options.rejected.empty()) return {};
  const auto full = options.when_full == WhenFull::wait ? fleet::Tier::Full::wait : fleet::Tier::Full::drop;
  return [tier, lease = std::move(lease), full, key = unit.made.key,
          labels = labels_of(obtained.image->facts)](cache::Record&& record) mutable {
    tier->publish(entry_of(key, std::move(record), labels), std::move(labels.about), std::move(lease), full);
  };
}

}  // namespace kiln::runtime
