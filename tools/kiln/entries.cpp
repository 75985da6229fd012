#include "entries.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <map>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/wire.hpp"
#include "cache/pages.hpp"
#include "context.hpp"
#include "kiln/error.hpp"
#include "runtime/places.hpp"

namespace kiln::cli {
namespace {

/// The directory, or the nearest one above it that exists, can be written.
bool could_be_made(std::string directory) {
  struct stat st {};
  while (::stat(directory.c_str(), &st) != 0 && directory.size() > 1)
    directory = base::directory_of(directory);
  return S_ISDIR(st.st_mode) && ::access(directory.c_str(), W_OK) == 0;
}

/// Numbers by value, everything else as text.
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

/// An entry with the places of its unit and arch among all that there are: few, and compared most.
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

}  // namespace

StorePlace find_store(const runtime::Config& config) {
  const auto has_file = [](const std::string& directory) {
    struct stat st {};
    return ::stat((directory + "/v1/data.mdb").c_str(), &st) == 0;
  };
  const std::vector<runtime::Candidate> candidates = runtime::store_candidates(config);
  for (const runtime::Candidate& candidate : candidates) {
    std::string directory;
    try {
      directory = runtime::directory_of(candidate);
    } catch (const Error& error) {
      if (candidate.kind == runtime::Candidate::Kind::configured) base::warn_once("view", error.what());
      continue;
    }
    if (has_file(directory)) return {directory, true};
    if (could_be_made(directory)) return {directory, false};
    // Somebody else's, which cannot be written: what it holds is read as a layer is.
    if (has_file(candidate.directory)) return {candidate.directory, true};
  }
  return {candidates.front().directory, false};
}

StoreView view_store(const runtime::Config& config) {
  const StorePlace place = find_store(config);
  if (!place.there) return {place.directory, nullptr};
  cache::StoreOptions options;
  options.directory = place.directory, options.access = cache::Access::read_only;
  options.cap_bytes = config.cache_max_bytes();
  return {place.directory, cache::Store::open(options)};
}

namespace {

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

/// Keys of what a listing could not read.
std::vector<std::string> find_damaged(cache::Store& store) {
  std::vector<std::string> out;
  for (const cache::DamageReport& damage : store.verify().damaged) out.push_back(damage.key);
  return out;
}

}  // namespace

std::vector<StoredEntry> read_entries(cache::Store& store, std::vector<std::string>* damaged) {
  std::deque<StoredEntry> read;  // entries are large: moved once, not by growing and not by the sort
  const cache::Listed listed = store.list([&](const cache::Entry& entry) {
    add_entry(read, entry);
    if (!read.empty()) std::string().swap(read.back().facts.log);
  });
  if (damaged && listed.unreadable > 0) *damaged = find_damaged(store);
  std::vector<Ranked> order = ranked(read);
  std::sort(order.begin(), order.end(), ranked_less);
  std::vector<StoredEntry> sorted;
  sorted.reserve(order.size());
  for (const Ranked& at : order) sorted.push_back(std::move(*at.entry));
  return sorted;
}

void sum_entries(cache::Store& store, const std::function<void(const SummedEntry&)>& each,
                 std::vector<std::string>* damaged) {
  compile::FactsSummary facts;
  const cache::Listed listed = store.list([&](const cache::Entry& entry) {
    try {
      compile::decode_summary(entry.facts, facts);
    } catch (const base::Malformed&) {
      return base::debug("entry " + entry.key.hex() + " is of another version of kiln");
    }
    each({facts, entry.image_bytes, entry.stored_bytes, entry.last_used_s, entry.uses});
  });
  if (damaged && listed.unreadable > 0) *damaged = find_damaged(store);
}

StoredEntry find_entry(const StoreView& view, const std::string& prefix) {
  if (prefix.find_first_not_of("0123456789abcdef") != std::string::npos || prefix.size() > 64) {
    throw Error(Errc::invalid_argument,
                "'" + prefix + "' is no key: expected up to 64 digits 0-9a-f, as 'kiln ls' shows them");
  }
  if (!view.store) throw Error(Errc::io, "nothing is cached in '" + view.directory + "' yet");
  cache::Store& store = *view.store;
  const Key first = *Key::from_hex(prefix + std::string(64 - prefix.size(), '0'));
  const Key last = *Key::from_hex(prefix + std::string(64 - prefix.size(), 'f'));
  std::vector<StoredEntry> found;
  const cache::Listed listed =
      store.list(first, last, [&](const cache::Entry& entry) { add_entry(found, entry); });
  if (found.empty() && listed.unreadable > 0) throw cache::Damaged("entry " + prefix.substr(0, 12));
  if (found.size() == 1) return std::move(found.front());
  if (found.empty())
    throw Error(Errc::io,
                "no entry's key begins with '" + prefix + "' in " + store.directory() + " (see 'kiln ls')");
  std::string message = counted(found.size(), "key") + " begin with '" + prefix + "':";
  constexpr std::size_t most = 10;
  for (std::size_t i = 0; i < found.size() && i < most; ++i) {
    message += "\n  " + found[i].key.hex().substr(0, std::max<std::size_t>(12, prefix.size() + 4)) + "  " +
               found[i].facts.specialization().to_string() + ' ' + found[i].facts.arch;
  }
  if (found.size() > most) message += "\n  and " + std::to_string(found.size() - most) + " more";
  throw Error(Errc::invalid_argument, message);
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
  out["nvrtc"] = f.nvrtc_version;
  return out;
}

std::string damaged_text(const std::vector<std::string>& damaged) {
  return counted(damaged.size(), "entry is", "entries are") +
         " damaged; 'kiln verify' says which, and each is compiled again when it is asked for";
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

}  // namespace kiln::cli
