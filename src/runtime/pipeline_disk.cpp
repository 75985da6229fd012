// Steps 2 and 6 of the path: what the store has, whose record may be served, and what is published.
#include <algorithm>
#include <charconv>

#include "base/log.hpp"
#include "base/wire.hpp"
#include "runtime/pipeline_unit.hpp"

namespace kiln::runtime {
namespace {

/// A read that cannot pass the gate for so long is a miss: a stopped writer of another process must not stop
/// this one.
constexpr auto kReadPatience = std::chrono::seconds(5);

/// "13.0" as a number to sort by.
double version_number(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

std::optional<Obtained> Pipeline::from_disk(const Unit& unit, const ObtainOptions& options,
                                            bool count_misses) {
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
        case cache::Miss::absent:
          ++counters_.miss_absent;
          break;
        case cache::Miss::damaged:
          ++counters_.miss_damaged;
          break;
        case cache::Miss::other_key_text:
          ++counters_.miss_other_key_text;
          break;
        case cache::Miss::gate_timeout:
          ++counters_.miss_gate_timeout;
          break;
        case cache::Miss::unreadable:
          ++counters_.miss_unreadable;
          break;
      }
    }
  }
  auto foreign = from_foreign(unit, options);
  if (foreign && count_misses) ++counters_.foreign_toolchain;
  return foreign;
}

/// DESIGN 4: on a sealed service or a slim host, records of the same specialisation made by another
/// toolchain, by NVRTC version, then age; never one whose project files were reached only through the
/// toolkit.
std::optional<Obtained> Pipeline::from_foreign(const Unit& unit, const ObtainOptions& options) {
  const std::string& rule = config_.get("toolchain");
  const bool slim =
      !toolkit().has_compiler() || (toolkit().include_dirs.empty() && !unit.closure.missing.empty());
  if (rule == "own" || (rule.empty() && !slim && options.may_compile)) return std::nullopt;

  std::vector<std::shared_ptr<StoredImage>> candidates;
  for (auto& [key, record] : store()->find(unit.made.key.specialisation,
                                           earlier(options.deadline, base::Deadline::after(kReadPatience)))) {
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

void Pipeline::publish(const Unit& unit, cache::Record record, const std::string& unpublishable,
                       std::shared_ptr<cache::Flight> host, WhenFull when_full) noexcept try {
  if (!unpublishable.empty()) {
    ++counters_.unpublishable;
    base::warn_once("unpublishable " + unit.instantiation.unit + unpublishable,
                    hint(unit.instantiation) + " was compiled but not cached: " + unpublishable);
    return;
  }
  if (auto opened = store()) {
    publisher_.hand_over(
        {unit.made.key, std::move(record), hint(unit.instantiation), std::move(opened), std::move(host)},
        when_full);
  }
} catch (...) {
  ++counters_.skipped_failed;  // out of memory on the way to the queue: the kernel is served
}

}  // namespace kiln::runtime
