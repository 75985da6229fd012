// The entries of a store with their facts, as inspection reads them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compile/key/facts_summary.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/store/key_name.hpp"
#include "tools/kiln/store/view.hpp"

namespace kiln::cli {

struct StoredEntry {
  Key key;
  compile::Facts facts;
  std::uint64_t cubin_bytes = 0, stored_bytes = 0;
  std::uint64_t last_used_s = 0, uses = 0;  ///< as cache::Entry

  /// "rms_norm"; a reference belongs to its template.
  std::string template_name() const { return facts.unit.substr(0, facts.unit.find('@')); }
};
/// All of them, without the compilers' logs, sorted by template, arch and parameters (numbers as numbers).
/// Entries of another version of the facts are left out, and those whose heads are damaged: `damaged`
/// receives their keys; and tuned choices (choices.hpp), which are no images: `choices` receives how many.
/// Throws Damaged when the file is.
std::vector<StoredEntry> read_entries(cache::Store& store, std::vector<std::string>* damaged = nullptr,
                                      std::uint64_t* choices = nullptr);

/// Throws Error(unknown_template), with the nearest name, for a template that neither the template path nor
/// one of `entries` has.
void check_template(const std::string& name, const std::vector<StoredEntry>& entries,
                    const runtime::Config& config);

/// Calls `each` for every entry with what sums need of it, in no order that means anything: a third of the
/// time that read_entries takes. Otherwise as that.
struct SummedEntry {
  const compile::FactsSummary& facts;  ///< views that end with the call
  std::uint64_t cubin_bytes, stored_bytes, last_used_s, uses;
  std::string_view template_name() const { return facts.unit.substr(0, facts.unit.find('@')); }
};
void sum_entries(cache::Store& store, const std::function<void(const SummedEntry&)>& each,
                 std::vector<std::string>* damaged = nullptr, std::uint64_t* choices = nullptr);

/// The entry of exactly this key; nothing where it is not, or its facts are not this version's.
std::optional<StoredEntry> entry_of(cache::Store& store, const Key& key);

/// Says why an entry that a listing showed could not be read: Damaged, else Error(io).
[[noreturn]] void throw_unread(const Key& key, cache::Miss miss);
inline constexpr int kLooks = 3;  ///< for an entry that is removed while it is read

/// The one entry of that name, from the first of the stores that has it; reads no others. Throws
/// Error(invalid_argument), naming the candidates, when there are several, Error(io) when there is none,
/// Damaged when there is one whose head cannot be read.
struct FoundEntry {
  StoredEntry entry;
  std::shared_ptr<cache::Store> store;
};
/// Where a key that somebody names is looked for.
struct SearchedStores {
  std::string directory;  ///< that of `view_store`, for people
  std::vector<std::shared_ptr<cache::Store>> stores;
};
FoundEntry find_entry(const SearchedStores& searched, const KeyName& name);
/// The one entry of that name with what `read` gives for its store and key (Store::peek, Store::peek_text).
/// An entry that is removed in between is looked for again. Throws as find_entry, and as throw_unread.
template <class Read>
auto read_found(const SearchedStores& searched, const KeyName& name, const Read& read) {
  for (int looks = 0;; ++looks) {
    FoundEntry found = find_entry(searched, name);
    auto got = read(*found.store, found.entry.key);
    if (got) return std::pair(std::move(found.entry), *std::move(got));
    if (got.miss != cache::Miss::absent || looks == kLooks) throw_unread(found.entry.key, got.miss);
  }
}
/// The writable store, what else `ls` lists or a compile reads, then the layers in order. Throws as
/// view_places.
SearchedStores searched_stores(const runtime::Config& config);

/// sm_80 before sm_90a before sm_100a.
bool arch_less(const std::string& a, const std::string& b) noexcept;

/// Names for a list of them.
KeyNames names_of(const std::vector<StoredEntry>& entries, std::size_t digits = 12);

/// What the JSON of ls and show have in common.
Json json_of(const StoredEntry& entry);

/// What ls and stats say of `read_entries`' damaged ones.
std::string damaged_text(const std::vector<std::string>& damaged);
/// kDone, or kDamaged after saying so on stderr.
int exit_of(const std::vector<std::string>& damaged);

/// "Nothing is cached in DIR yet. ..." for people.
std::string empty_store_text(const StoreView& view);
/// The same with what the configured layers hold, and how to list that.
std::string empty_store_text(const StoreView& view, const runtime::Config& config);

}  // namespace kiln::cli
