#include "tools/kiln/store/entries.hpp"

#include <algorithm>
#include <charconv>
#include <deque>
#include <map>

#include "base/log.hpp"
#include "base/text.hpp"
#include "base/wire.hpp"
#include "cache/blob/blob.hpp"
#include "cache/store/file/pages.hpp"
#include "compile/key/tuned_choice.hpp"
#include "kiln/error.hpp"
#include "runtime/state/places.hpp"
#include "tools/kiln/cli/catalog.hpp"
#include "tools/kiln/cli/context.hpp"

namespace kiln::cli {
namespace {

/// Compares numbers by value, everything else as text.
bool value_less(const std::string& a, const std::string& b) {
  std::int64_t x = 0, y = 0;
  const auto number = [](const std::string& s, std::int64_t& out) {
    return std::from_chars(s.data(), s.data() + s.size(), out).ptr == s.data() + s.size() && !s.empty();
  };
  return number(a, x) && number(b, y) ? x < y : a < b;
}

}  // namespace

bool arch_less(const std::string& a, const std::string& b) noexcept {
  const auto number = [](const std::string& s) {
    int out = 0;
    if (s.size() > 3) std::from_chars(s.data() + 3, s.data() + s.size(), out);
    return out;
  };
  return number(a) != number(b) ? number(a) < number(b) : a < b;
}

namespace {

/// An entry with the ranks of its unit and its arch. There are few units and archs, and they are compared
/// most often.
struct Ranked {
  StoredEntry* entry;
  std::size_t unit, arch;
};

std::vector<Ranked> ranked(std::deque<StoredEntry>& entries) {
  std::map<std::string, std::size_t> units;
  std::map<std::string, std::size_t, decltype(&arch_less)> archs(&arch_less);
  for (const StoredEntry& entry : entries) units[entry.facts.unit] = 0, archs[entry.facts.arch] = 0;
  std::size_t place = 0;
  for (auto& unit : units) unit.second = place++;
  for (auto& arch : archs) arch.second = place++;
  std::vector<Ranked> out;
  out.reserve(entries.size());
  for (StoredEntry& entry : entries)
    out.push_back({&entry, units.at(entry.facts.unit), archs.at(entry.facts.arch)});
  return out;
}

bool ranked_less(const Ranked& x, const Ranked& y) {
  if (x.unit != y.unit) return x.unit < y.unit;
  if (x.arch != y.arch) return x.arch < y.arch;
  const StoredEntry &a = *x.entry, &b = *y.entry;
  const std::size_t common = std::min(a.facts.parameters.size(), b.facts.parameters.size());
  for (std::size_t i = 0; i < common; ++i) {
    const Parameter &p = a.facts.parameters[i], &q = b.facts.parameters[i];
    if (p.name != q.name) return p.name < q.name;
    if (p.value != q.value) return value_less(p.value, q.value);
  }
  if (a.facts.parameters.size() != b.facts.parameters.size())
    return a.facts.parameters.size() < b.facts.parameters.size();
  return a.key < b.key;
}

template <class Entries>
void add_entry(Entries& out, const cache::Entry& entry) {
  try {
    compile::Facts facts = compile::decode_facts(entry.facts);
    out.push_back(
        {entry.key, std::move(facts), entry.image_bytes, entry.stored_bytes, entry.last_used_s, entry.uses});
  } catch (const base::Malformed&) {
    base::debug("entry " + entry.key.hex() + " is of another version of kiln");
  }
}

/// Keys of the entries that a listing could not read.
std::vector<std::string> find_damaged(cache::Store& store) {
  std::vector<std::string> out;
  for (const cache::DamageReport& damage : store.verify().damaged) out.push_back(damage.key);
  return out;
}

}  // namespace

bool OtherRecords::take(const cache::Entry& entry) noexcept {
  if (compile::is_choice(entry.facts)) return ++choices, true;
  if (!cache::is_blob(entry.facts)) return false;
  ++blobs;
  blob_bytes += entry.stored_bytes;
  return true;
}

std::vector<StoredEntry> read_entries(cache::Store& store, std::vector<std::string>* damaged,
                                      OtherRecords* others) {
  OtherRecords counted;
  std::deque<StoredEntry> read;  // entries are large: each is moved once, not when a vector grows or sorts
  const cache::Listed listed = store.list([&](const cache::Entry& entry) {
    if (counted.take(entry)) return;
    add_entry(read, entry);
    if (!read.empty()) std::string().swap(read.back().facts.log);
  });
  if (damaged && listed.unreadable > 0) *damaged = find_damaged(store);
  if (others) *others = counted;
  std::vector<Ranked> order = ranked(read);
  std::sort(order.begin(), order.end(), ranked_less);
  std::vector<StoredEntry> sorted;
  sorted.reserve(order.size());
  for (const Ranked& at : order) sorted.push_back(std::move(*at.entry));
  return sorted;
}

void check_template(const std::string& name, const std::vector<StoredEntry>& entries,
                    const runtime::Config& config) {
  std::vector<std::string> known = catalog_of(config.template_directories()).names();
  for (const StoredEntry& entry : entries) known.push_back(entry.template_name());
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  throw Error(Errc::unknown_template, "no template is called '" + name + "', and no entry of one is cached" +
                                          base::did_you_mean(name, known) +
                                          " ('kiln templates' lists the installed ones)");
}

void sum_entries(cache::Store& store, const std::function<void(const SummedEntry&)>& each,
                 std::vector<std::string>* damaged, OtherRecords* others) {
  OtherRecords counted;
  compile::FactsSummary facts;
  const cache::Listed listed = store.list([&](const cache::Entry& entry) {
    if (counted.take(entry)) return;
    try {
      compile::decode_summary(entry.facts, facts);
    } catch (const base::Malformed&) {
      return base::debug("entry " + entry.key.hex() + " is of another version of kiln");
    }
    each({facts, entry.image_bytes, entry.stored_bytes, entry.last_used_s, entry.uses});
  });
  if (damaged && listed.unreadable > 0) *damaged = find_damaged(store);
  if (others) *others = counted;
}

SearchedStores searched_stores(const runtime::Config& config) {
  const PlacesView view = view_places(config);
  const StorePlace listed = find_store(config);
  SearchedStores out{listed.directory, {}};
  bool has_listed = false;
  for (const auto& store : {view.places.writable, view.places.readable}) {
    if (!store) continue;
    has_listed = has_listed || store->directory() == listed.directory;
    out.stores.push_back(store);
  }
  if (listed.there && !has_listed) out.stores.push_back(view_store(config).store);
  for (auto& layer : runtime::open_layers(config)) out.stores.push_back(std::move(layer));
  return out;
}

namespace {

/// "2 keys begin with '7ca0':" and a line for each. `listed` holds all keys of the stores in
/// the name's range.
std::string ambiguous(const KeyName& name, const std::map<Key, FoundEntry>& found, const KeyNames& listed) {
  std::string out = counted(found.size(), "key") + " begin with " + name.quoted() + ':';
  constexpr std::size_t most = 10;
  std::size_t named = 0;
  for (const auto& [key, candidate] : found) {
    if (named++ == most) break;
    const compile::Facts& facts = candidate.entry.facts;
    const std::string shown = listed.of(key);
    out += "\n  " + shown + "  " + facts.specialization().to_string() + ' ' + facts.arch;
    if (shown.find('-') != std::string::npos) out += ", by NVRTC " + facts.compiler_version;
  }
  if (found.size() > most) out += "\n  and " + std::to_string(found.size() - most) + " more";
  return out;
}

}  // namespace

FoundEntry find_entry(const SearchedStores& searched, const KeyName& name) {
  if (searched.stores.empty()) throw Error(Errc::io, "nothing is cached in '" + searched.directory + "' yet");
  std::map<Key, FoundEntry> found;
  std::vector<Key> listed;
  std::string directories;
  bool unreadable = false;
  for (const auto& store : searched.stores) {
    std::vector<StoredEntry> here;
    const auto said = store->list(name.first(), name.last(), [&](const cache::Entry& entry) {
      listed.push_back(entry.key);
      if (name.names(entry.key)) add_entry(here, entry);
    });
    for (StoredEntry& entry : here) {
      const Key key = entry.key;
      found.try_emplace(key, FoundEntry{std::move(entry), store});
    }
    unreadable = unreadable || said.unreadable > 0;
    directories += (directories.empty() ? "" : ", ") + store->directory();
  }
  if (found.empty() && unreadable) throw cache::Damaged("entry " + name.quoted());
  if (found.size() == 1) return std::move(found.begin()->second);
  if (found.empty())
    throw Error(Errc::io,
                "no entry's key begins with " + name.quoted() + " in " + directories + " (see 'kiln ls')");
  throw Error(Errc::invalid_argument, ambiguous(name, found, KeyNames(std::move(listed))));
}

KeyNames names_of(const std::vector<StoredEntry>& entries, std::size_t digits) {
  std::vector<Key> keys;
  keys.reserve(entries.size());
  for (const StoredEntry& entry : entries) keys.push_back(entry.key);
  return KeyNames(std::move(keys), digits);
}

std::optional<StoredEntry> entry_of(cache::Store& store, const Key& key) {
  std::vector<StoredEntry> out;
  store.list(key, key, [&](const cache::Entry& entry) { add_entry(out, entry); });
  return out.empty() ? std::nullopt : std::optional(std::move(out.front()));
}

void throw_unread(const Key& key, cache::Miss miss) {
  const std::string entry = "entry " + short_name(key);
  if (miss == cache::Miss::damaged) throw cache::Damaged(entry);
  if (miss == cache::Miss::absent)
    throw Error(Errc::io,
                entry + " was removed while it was read (evicted, or by 'kiln clear' or 'kiln gc')");
  throw Error(Errc::io, entry + (miss == cache::Miss::gate_timeout
                                     ? " could not be read: another process holds the store's lock"
                                     : " could not be read"));
}

Json json_of(const StoredEntry& entry) {
  const compile::Facts& f = entry.facts;
  Json out;
  out["key"] = entry.key.hex();
  out["template"] = f.unit;
  out["params"] = json_of(f.parameters);
  out["arch"] = f.arch;
  out["cubin_bytes"] = entry.cubin_bytes;
  out["stored_bytes"] = entry.stored_bytes;
  out["created"] = f.created_s;
  out["last_used"] = entry.last_used_s;
  out["uses"] = entry.uses;
  out["registers"] = f.registers;
  out["spill_bytes"] = f.spill_store_bytes + f.spill_load_bytes;
  out["shared_bytes"] = f.shared_bytes;
  out["compile_ms"] = f.compile_ms;
  out["nvrtc"] = f.compiler_version;
  return out;
}

std::string damaged_text(const std::vector<std::string>& damaged) {
  return counted(damaged.size(), "entry is", "entries are") +
         " damaged; 'kiln verify' lists them, and each is compiled again when it is asked for";
}

int exit_of(const std::vector<std::string>& damaged) {
  if (damaged.empty()) return kDone;
  std::fflush(stdout);
  std::fprintf(stderr, "kiln: error: %s\n", damaged_text(damaged).c_str());
  return kDamaged;
}

std::string empty_store_text(const StoreView& view) {
  if (view.directory.empty()) return "No directory for a cache was found; set KILN_CACHE_DIR.";
  return "Nothing is cached in " + view.directory +
         " yet. 'kiln prewarm', 'kiln compile' and every program that uses kiln fill it.";
}

std::string empty_store_text(const StoreView& view, const runtime::Config& config) {
  std::string out = empty_store_text(view);
  for (const auto& layer : runtime::open_layers(config)) {
    const std::uint64_t entries = layer->stats().entries;
    if (entries > 0)
      out += ' ' + counted(entries, "entry is", "entries are") + " in the layer " + layer->directory() +
             ": kiln ls --cache-dir " + layer->directory() + '.';
  }
  return out;
}

}  // namespace kiln::cli
