#include "tools/kiln/store/tier/transfer.hpp"

#include <algorithm>

#include "base/arch.hpp"
#include "base/wire.hpp"
#include "cache/blob/blob.hpp"
#include "compile/key/key.hpp"
#include "compile/key/tuned_choice.hpp"
#include "runtime/state/open_tier.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/cli/progress.hpp"
#include "tools/kiln/store/bundled_entry.hpp"

namespace kiln::cli {
namespace {

constexpr auto kFlushPatience = std::chrono::seconds(60);

/// Waits until the server's name is resolved, once for all keys, and fetches again.
fleet::Tier::Fetched patiently(fleet::Tier& tier, const fleet::Asked& asked,
                               std::span<const trust::PublicKey> believed) {
  tier.backend().upkeep().reach(asked.key.specialisation);
  return std::move(tier.fetch({asked}, base::Deadline::never(), believed).front());
}

std::vector<fleet::Tier::Fetched> fetch(fleet::Tier& tier, const std::vector<fleet::Asked>& asked,
                                        std::span<const trust::PublicKey> believed) {
  auto out = tier.fetch(asked, base::Deadline::never(), believed);
  for (std::size_t i = 0; i < out.size(); ++i)
    if (out[i].fault == fleet::Fault::unresolved) out[i] = patiently(tier, asked[i], believed);
  return out;
}

/// Returns nothing for facts of another version.
std::optional<runtime::TierLabels> labels_of(const cache::Record& record) {
  try {
    if (compile::is_choice(record.facts)) {
      const compile::TunedChoice choice = compile::decode_choice(record.facts);
      return runtime::TierLabels{choice.arch, "tuned", {choice.created_s, false, ""}};
    }
    if (cache::is_blob(record.facts))
      return runtime::TierLabels{"", "blobs of " + cache::decode_blob(record.facts).space, {}};
    return runtime::labels_of(compile::decode_facts(record.facts));
  } catch (const base::Malformed&) {
    return std::nullopt;
  }
}

/// False for an entry that is there without its row: the server may evict one of the two only.
std::vector<bool> are_listed(fleet::Tier& tier, const std::vector<cache::Record>& batch,
                             const std::vector<fleet::Tier::Fetched>& fetched,
                             std::span<const trust::PublicKey> believed) {
  std::vector<Key> keys;
  for (std::size_t i = 0; i < batch.size(); ++i)
    if (fetched[i].entry) keys.push_back(batch[i].key);
  std::vector<bool> of_keys = tier.are_listed(keys, base::Deadline::never(), believed);
  of_keys.resize(keys.size(), true);
  std::vector<bool> out(batch.size(), true);
  for (std::size_t i = 0, key = 0; i < batch.size(); ++i)
    if (fetched[i].entry) out[i] = of_keys[key++];
  return out;
}

}  // namespace

Pushed push_entries(fleet::Tier& tier, const std::vector<Key>& keys,
                    const std::function<cache::Peeked<cache::Record>(const Key&)>& record, bool quiet) {
  const auto start = base::Clock::now();
  // Believes only this signer's own key. During a key rotation, entries that only the old key signed are
  // written again.
  const std::span<const trust::PublicKey> own(&tier.signer()->public_key(), 1);
  Pushed out;
  out.entries = out.left = keys.size();
  Progress progress(keys.size(), !quiet);
  const fleet::Tier::Totals before = tier.totals();
  std::uint64_t handed_over = 0;
  for (std::size_t from = 0; from < keys.size() && !out.fault.down; from += kKeysAtOnce) {
    if (PoliteInterrupt::requested()) break;
    std::vector<cache::Record> batch;
    for (std::size_t i = from; i < std::min(from + kKeysAtOnce, keys.size()); ++i) {
      if (auto one = record(keys[i]))
        batch.push_back(*std::move(one));
      else if (one.miss == cache::Miss::absent)
        ++out.removed;
      else
        ++out.unreadable;
    }
    std::vector<fleet::Asked> asked;
    for (const cache::Record& one : batch)
      asked.push_back({one.key, one.key_text, fleet::Asked::Text::whole});
    const auto fetched = fetch(tier, asked, own);
    const std::vector<bool> listed = are_listed(tier, batch, fetched, own);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (fetched[i].entry && listed[i]) {
        ++out.present;
        continue;
      }
      if (fetched[i].fault != fleet::Fault::none) {
        ++out.failed;
        out.fault.note(fetched[i].fault, fetched[i].detail);
        continue;
      }
      const auto labels = labels_of(batch[i]);
      if (!labels) {
        ++out.unreadable;
        continue;
      }
      handed_over += tier.publish(runtime::envelope_of(std::move(batch[i]), *labels), labels->about, nullptr,
                                  fleet::Tier::Full::wait);
    }
    const std::size_t reached = std::min(from + kKeysAtOnce, keys.size());
    out.left = keys.size() - reached;
    progress.reached(reached);
  }
  tier.flush(base::Deadline::after(kFlushPatience));
  const fleet::Tier::Totals after = tier.totals();
  out.pushed = after.puts - before.puts;
  if (const std::uint64_t lost = handed_over - std::min(handed_over, out.pushed)) {
    out.failed += lost;
    out.fault.note(after.last_fault == fleet::Fault::none ? fleet::Fault::timeout : after.last_fault,
                   after.last_detail);
  }
  out.seconds = std::chrono::duration<double>(base::Clock::now() - start).count();
  return out;
}

Json json_of(const Pushed& pushed) {
  return {{"entries", pushed.entries}, {"pushed", pushed.pushed},         {"present", pushed.present},
          {"failed", pushed.failed},   {"unreadable", pushed.unreadable}, {"left", pushed.left},
          {"removed", pushed.removed}, {"fault", pushed.fault.json()},    {"seconds", pushed.seconds}};
}

std::string text_of(const Pushed& pushed) {
  std::string out = counted(pushed.pushed, "entry", "entries") + " written to the fleet's tier, " +
                    std::to_string(pushed.present) + " there already";
  if (pushed.failed) out += ", " + std::to_string(pushed.failed) + " failed";
  if (pushed.unreadable) out += ", " + std::to_string(pushed.unreadable) + " unreadable here";
  if (pushed.removed)
    out += ", " + std::to_string(pushed.removed) + " no longer here (evicted or removed meanwhile)";
  out += ", in " + human_ms(pushed.seconds * 1000);
  if (pushed.left)
    out += "; " + counted(pushed.left, "entry that is", "entries that are") +
           " here may not be in the tier yet: run the same command again to write the rest";
  return out;
}

std::vector<bool> covered_by(fleet::Tier& tier, const std::vector<std::pair<Key, std::string>>& texts,
                             FirstFault& fault) {
  std::vector<bool> out;
  for (std::size_t from = 0; from < texts.size(); from += kKeysAtOnce) {
    std::vector<fleet::Asked> asked;
    for (std::size_t i = from; i < std::min(from + kKeysAtOnce, texts.size()); ++i)
      asked.push_back({texts[i].first, texts[i].second, fleet::Asked::Text::whole});
    for (const auto& fetched : fetch(tier, asked, tier.trusted())) {
      out.push_back(fetched.entry.has_value());
      fault.note(fetched.fault, fetched.detail);
    }
  }
  return out;
}

bool is_usable(const cache::Record& record, std::string& why) try {
  if (!check_entry(record).other_version) return true;
  why = "of another version of kiln";
  return false;
} catch (const Error& error) {
  why = error.what();
  return false;
}

}  // namespace kiln::cli
