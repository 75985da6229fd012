#include "tools/kiln/audit/run.hpp"

#include <algorithm>
#include <atomic>

#include "base/hash.hpp"
#include "tools/kiln/audit/compare.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/cli/progress.hpp"
#include "tools/kiln/plan/threads.hpp"

namespace kiln::cli {
namespace {

using State = AuditResult::State;

constexpr auto kReadPatience = std::chrono::seconds(10);

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

/// Instantiates the entry's unit and values from today's sources. Throws Error for values that
/// no template takes.
source::Instantiation instantiation_of(runtime::Service& service, const StoredEntry& entry) {
  const compile::Facts& facts = entry.facts;
  const auto origin = service.catalog().open(entry.template_name());
  std::vector<NamedValue> values;
  for (const Parameter& p : facts.parameters) values.push_back({p.name, Value(std::string_view(p.value))});
  const bool reference = facts.unit != entry.template_name();
  // A reference may be compiled for archs that its template does not support.
  source::Resolved resolved = source::resolve(origin->manifest, source::positional(origin->manifest, values),
                                              base::Arch::parse(facts.arch),
                                              reference ? source::Archs::any : source::Archs::supported);
  return source::instantiate(origin, std::move(resolved),
                             reference ? source::Which::reference : source::Which::kernel);
}

AuditResult audit_entry(runtime::Service& service, cache::Store& store, const StoredEntry& entry) {
  AuditResult out;
  const auto end = [&out](State state, std::string reason) {
    out.state = state, out.reason = std::move(reason);
    return out;
  };
  const auto record = store.peek(entry.key, base::Deadline::after(kReadPatience));
  if (!record) {
    if (record.miss == cache::Miss::absent)
      return end(State::removed, "evicted, or removed by 'kiln clear' or 'kiln gc'");
    if (record.miss == cache::Miss::damaged) return end(State::damaged, "'kiln verify' says more");
    return end(State::failed, "could not be read: " + std::string(cache::to_string(record.miss)));
  }
  std::optional<source::Instantiation> unit;
  try {
    unit = instantiation_of(service, entry);
    const compile::MadeKey now = service.core().path().key_of(*unit);
    if (now.key != entry.key) return end(State::not_comparable, key_difference(record->key_text, now.text));
  } catch (const std::exception& error) {
    return end(State::not_comparable, first_line(error));
  }
  try {
    const compile::Compiled compiled = service.core().compile_alone(*unit, false, compile::Urgency::ahead);
    out.compiled_bytes = compiled.image.size();
    out.compile_ms = compiled.facts.compile_ms;
    ImageDifference difference = compare_images(entry.facts, record->image, compiled.facts, compiled.image);
    out.section = std::move(difference.section);
    const State state = difference.text.empty() ? State::equal : State::differs;
    return end(state, std::move(difference.text));
  } catch (const std::exception& error) {
    return end(State::failed, first_diagnostic(error));
  }
}

std::string line_of(const std::string& label, const AuditResult& result, const Terminal& terminal) {
  const bool yellow = result.state == State::not_comparable || result.state == State::removed;
  const Style style = result.state == State::equal ? Style::plain : yellow ? Style::yellow : Style::red;
  std::string words(name_of(result.state));
  std::replace(words.begin(), words.end(), '_', ' ');
  std::string out = paint(words, style, terminal) + std::string(15 - words.size(), ' ') + label;
  if (!result.reason.empty()) out += ": " + result.reason;
  return out;
}

}  // namespace

std::string_view name_of(State state) noexcept {
  static constexpr std::string_view names[] = {"not_started", "equal",          "differs", "damaged",
                                               "removed",     "not_comparable", "failed"};
  return names[static_cast<int>(state)];
}

std::vector<StoredEntry> sample_of(std::vector<StoredEntry> entries, std::size_t count, std::uint64_t seed) {
  if (count >= entries.size()) return entries;
  std::vector<std::pair<std::uint64_t, std::size_t>> order;
  for (std::size_t i = 0; i < entries.size(); ++i)
    order.emplace_back(base::hash64(std::to_string(seed) + ' ' + entries[i].key.hex()), i);
  std::sort(order.begin(), order.end());
  order.resize(count);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<StoredEntry> out;
  for (const auto& [rank, i] : order) out.push_back(std::move(entries[i]));
  return out;
}

std::vector<AuditResult> run_audit(runtime::Service& service, cache::Store& store,
                                   const std::vector<StoredEntry>& entries, const AuditOptions& options) {
  std::vector<AuditResult> results(entries.size());
  const PoliteInterrupt interrupt;
  Progress progress(entries.size(), options.lines_on_stdout);
  std::vector<Key> keys;
  for (const StoredEntry& entry : entries) keys.push_back(entry.key);
  const KeyNames names(std::move(keys));
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i; !PoliteInterrupt::requested() && (i = next++) < entries.size();) {
      const std::string label =
          entries[i].facts.specialization().to_string() + " for " + entries[i].facts.arch;
      progress.started(label);
      results[i] = audit_entry(service, store, entries[i]);
      progress.finished(label,
                        line_of(label + " (" + names.of(entries[i].key) + ')', results[i], standard_error()),
                        results[i].state != State::equal);
    }
  };
  const int jobs =
      static_cast<int>(std::clamp<std::size_t>(entries.size(), 1, static_cast<std::size_t>(options.jobs)));
  run_in_threads(jobs, work, [&](int fewer, const std::string& why) {
    progress.remark("kiln: warning: " + std::to_string(fewer) + " compiles at once instead of " +
                    std::to_string(jobs) + ": no more threads could be started (" + why + ")");
  });
  return results;
}

}  // namespace kiln::cli
