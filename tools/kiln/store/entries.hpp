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
#include "tools/kiln/store/key/name.hpp"
#include "tools/kiln/store/view.hpp"

namespace kiln::cli {

struct StoredEntry {
  Key key;
  compile::Facts facts;
  std::uint64_t cubin_bytes = 0, stored_bytes = 0;
  std::uint64_t last_used_s = 0, uses = 0;  ///< as in cache::Entry

  /// "rms_norm". A reference ("rms_norm@reference") belongs to its template.
  std::string template_name() const { return facts.unit.substr(0, facts.unit.find('@')); }
};
/// How many records of a store are no images, by what they are.
struct OtherRecords {
  std::uint64_t choices = 0;  ///< tuned choices (choices.hpp)
  std::uint64_t blobs = 0;    ///< of other JIT compilers (cache/blob/blob.hpp), with the parts of large ones
  std::uint64_t blob_bytes = 0;  ///< of these in the store

  /// Counts a record of another kind. False for an image.
  bool take(const cache::Entry& entry) noexcept;
};
/// Reads all entries, sorted by template, arch and parameters (numbers by value). The compilers'
/// logs are dropped.
/// Three kinds of entries are left out:
/// - entries whose facts another version of kiln wrote;
/// - entries whose heads are damaged: `damaged` receives their keys;
/// - tuned choices and blobs, which are no images: `others` receives their numbers.
/// Throws Damaged when the file itself is damaged.
std::vector<StoredEntry> read_entries(cache::Store& store, std::vector<std::string>* damaged = nullptr,
                                      OtherRecords* others = nullptr);

/// Throws Error(unknown_template), with the nearest name, when neither the template path nor any of `entries`
/// has the template.
void check_template(const std::string& name, const std::vector<StoredEntry>& entries,
                    const runtime::Config& config);

/// Calls `each` for every entry, in no particular order, with the facts that sums need. It takes a third of
/// the time of read_entries, and leaves out the same entries.
struct SummedEntry {
  const compile::FactsSummary& facts;  ///< views that are valid during the call only
  std::uint64_t cubin_bytes, stored_bytes, last_used_s, uses;
  std::string_view template_name() const { return facts.unit.substr(0, facts.unit.find('@')); }
};
void sum_entries(cache::Store& store, const std::function<void(const SummedEntry&)>& each,
                 std::vector<std::string>* damaged = nullptr, OtherRecords* others = nullptr);

/// The entry of exactly this key. Nothing when the store has none, or its facts are of another version.
std::optional<StoredEntry> entry_of(cache::Store& store, const Key& key);

/// Throws for an entry that a listing showed and that could not be read: Damaged, else Error(io).
[[noreturn]] void throw_unread(const Key& key, cache::Miss miss);
inline constexpr int kLooks = 3;  ///< repeated searches for an entry that is removed while it is read

/// Finds the one entry that `name` matches, in the first of the stores that has it. Reads no other entry.
/// Throws:
/// - Error(invalid_argument), which names the candidates, when several entries match;
/// - Error(io) when none matches, and all heads in the name's range can be read;
/// - Damaged when none matches, and a head in the name's range cannot be read.
struct FoundEntry {
  StoredEntry entry;
  std::shared_ptr<cache::Store> store;
};
/// Stores in which a key that the user names is looked for.
struct SearchedStores {
  std::string directory;  ///< the directory of `find_store`, for messages
  std::vector<std::shared_ptr<cache::Store>> stores;
};
FoundEntry find_entry(const SearchedStores& searched, const KeyName& name);
/// Finds the entry, and adds what `read` returns for its store and key (Store::peek, Store::peek_text). Looks
/// again for an entry that was removed in between. Throws as find_entry and throw_unread do.
template <class Read>
auto read_found(const SearchedStores& searched, const KeyName& name, const Read& read) {
  for (int looks = 0;; ++looks) {
    FoundEntry found = find_entry(searched, name);
    auto got = read(*found.store, found.entry.key);
    if (got) return std::pair(std::move(found.entry), *std::move(got));
    if (got.miss != cache::Miss::absent || looks == kLooks) throw_unread(found.entry.key, got.miss);
  }
}
/// The writable store, then other stores that `ls` lists or a compile reads, then the layers in order. Throws
/// as view_places does.
SearchedStores searched_stores(const runtime::Config& config);

/// sm_80 before sm_90a before sm_100a.
bool arch_less(const std::string& a, const std::string& b) noexcept;

/// Short names, unique within `entries`.
KeyNames names_of(const std::vector<StoredEntry>& entries, std::size_t digits = 12);

/// The JSON fields that `ls` and `show` share.
Json json_of(const StoredEntry& entry);

/// The sentence of `ls` and `stats` about damaged entries that `read_entries` met.
std::string damaged_text(const std::vector<std::string>& damaged);
/// Returns kDone, or kDamaged after a message on stderr when there are damaged entries.
int exit_of(const std::vector<std::string>& damaged);

/// For people: "Nothing is cached in DIR yet. ..."
std::string empty_store_text(const StoreView& view);
/// Also says what the configured layers hold, and how to list them.
std::string empty_store_text(const StoreView& view, const runtime::Config& config);

}  // namespace kiln::cli
