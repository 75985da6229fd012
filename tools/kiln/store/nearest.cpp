#include "tools/kiln/store/nearest.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/hash.hpp"
#include "base/wire.hpp"
#include "tools/kiln/store/entries.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kTextsRead = 32;
constexpr auto kPatience = std::chrono::seconds(10);

struct Candidate {
  Key key;
  cache::Store* store;
  std::size_t asked;  ///< as in Distance
  double apart;       ///< distance of the parameters' numbers, in powers of two
  bool other_text;    ///< true: the specialisation differs, not only the toolchain
};

bool nearer(const Candidate& a, const Candidate& b) {
  if (a.asked != b.asked) return a.asked < b.asked;
  if (a.other_text != b.other_text) return b.other_text;
  return a.apart != b.apart ? a.apart < b.apart : a.key < b.key;
}

std::optional<double> number_of(std::string_view text) {
  std::int64_t value = 0;
  const auto end = text.data() + text.size();
  if (std::from_chars(text.data(), end, value).ptr != end || text.empty()) return std::nullopt;
  return static_cast<double>(value);
}

/// Distance of two values in powers of two; 1 when one of them is no number.
double apart(std::string_view a, std::string_view b) {
  const auto x = number_of(a), y = number_of(b);
  if (!x || !y) return 1;
  return std::abs(std::log2(std::abs(*x) + 1) - std::log2(std::abs(*y) + 1));
}

void measure(const compile::FactsIdentity& entry, const Asked& asked, Candidate& out) {
  out.asked = entry.arch == asked.arch ? 0 : 3, out.apart = 0;
  for (const Parameter& p : asked.parameters) {
    const auto same = std::find_if(entry.parameters.begin(), entry.parameters.end(),
                                   [&](const auto& q) { return q.first == p.name; });
    if (same == entry.parameters.end())
      out.asked += 2;
    else if (same->second != p.value)
      out.asked += 2, out.apart += apart(same->second, p.value);
  }
  for (const auto& q : entry.parameters)
    out.asked += 2 * std::none_of(asked.parameters.begin(), asked.parameters.end(),
                                  [&](const Parameter& p) { return p.name == q.first; });
}

/// A key text that does not give the candidate's key counts as damaged.
cache::Peeked<Near> read(const Candidate& candidate, const Asked& asked) {
  const auto text = candidate.store->peek_text(candidate.key, base::Deadline::after(kPatience));
  if (!text) return {{}, text.miss};
  const std::string_view all = text->key_text, ours = asked.made.text;
  const std::size_t section = compile::toolchain_section(all);
  if (!(compile::key_of_text(all) == candidate.key)) return {{}, cache::Miss::damaged};
  Near out{candidate.key, {}, compile::decode_facts(text->facts), candidate.store->directory(), {}, {}};
  out.differences = asked.with_toolchain
                        ? key_differences(all, ours)
                        : key_differences(all.substr(0, section), asked.made.specialisation_text());
  out.distance = distance_of(out.differences);
  return {std::move(out)};
}

}  // namespace

Nearest find_nearest(const std::vector<std::shared_ptr<cache::Store>>& stores, const Asked& asked,
                     std::size_t most) {
  Nearest out;
  std::vector<Candidate> candidates;
  std::vector<Key> all;
  compile::FactsIdentity identity;
  for (const auto& store : stores) {
    const cache::Listed listed = store->list([&](const cache::Entry& entry) {
      all.push_back(entry.key);
      if (!asked.toolchain.empty() && !entry.key.toolchain.hex().starts_with(asked.toolchain)) return;
      try {
        compile::decode_identity(entry.facts, identity);
      } catch (const base::Malformed&) {  // written by another version of kiln: its key could be near, but
                                          // its facts cannot be read
        return;
      }
      if (identity.unit != asked.unit || entry.key == asked.made.key) return;
      Candidate& candidate = candidates.emplace_back(Candidate{entry.key, store.get(), 0, 0, false});
      candidate.other_text = entry.key.specialisation != asked.made.key.specialisation;
      measure(identity, asked, candidate);
    });
    out.entries += listed.shown;
    out.unreadable += listed.unreadable;
  }
  // An entry that both a layer and the store have counts once.
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.key < b.key; });
  candidates.erase(std::unique(candidates.begin(), candidates.end(),
                               [](const Candidate& a, const Candidate& b) { return a.key == b.key; }),
                   candidates.end());
  out.of_template = candidates.size();
  const std::size_t read_most = std::min(candidates.size(), std::max(most, kTextsRead));
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(read_most),
                    candidates.end(), nearer);
  for (std::size_t i = 0; i < read_most; ++i) {
    if (auto near = read(candidates[i], asked))
      out.best.push_back(*std::move(near));
    else if (near.miss == cache::Miss::damaged)
      ++out.unreadable;
    else if (near.miss != cache::Miss::absent)
      throw_unread(candidates[i].key, near.miss);
  }
  // Among entries that differ in nothing that was asked for, the newest shows best what has changed since.
  std::stable_sort(out.best.begin(), out.best.end(), [](const Near& a, const Near& b) {
    const bool equal = !(a.distance < b.distance) && !(b.distance < a.distance);
    if (!equal) return a.distance < b.distance;
    return a.distance.asked == 0 && a.facts.created_s > b.facts.created_s;
  });
  if (out.best.size() > most) out.best.resize(most);
  const KeyNames names(std::move(all));
  for (Near& near : out.best) near.name = names.of(near.key);
  return out;
}

}  // namespace kiln::cli
