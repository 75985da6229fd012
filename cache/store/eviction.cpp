#include "cache/store/eviction.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "cache/store/file/write_transaction.hpp"
#include "cache/store/survey.hpp"

namespace kiln::cache {
namespace {

// LMDB needs a run of free pages for the list of pages that a transaction freed. A small transaction finds
// such a run in any file.
constexpr std::size_t kEvictedPerTransaction = 2048, kFewestPieces = 16;

class Eviction {
 public:
  Eviction(StoreFile& file, const EvictionOptions& options, base::Deadline deadline)
      : file_(file), options_(options), deadline_(deadline) {}

  std::uint64_t run() {
    while (step()) {
    }
    if (evicted_ > 0) turn();
    return evicted_;
  }

 private:
  std::optional<WriteTransaction> enter() {
    std::optional<WriteTransaction> writing;
    std::string why;
    WriteTransaction::enter(file_, deadline_, writing, why);
    return writing;
  }

  /// Runs one transaction. Returns false when there is nothing more to delete, or nothing
  /// more can be deleted.
  bool step() {
    auto writing = enter();
    if (!writing) return false;
    const PageFile pages = writing->pages();
    if (deadline_.passed() || (options_.is_of_all() && live_bytes(pages) <= options_.live_bytes))
      return false;
    const RecentUses recent(file_, moment_of(pages));
    if (!surveyed_) entries_ = entries_in(pages, recent);
    surveyed_ = true;
    const std::uint64_t live = live_bytes(pages);
    if (live <= options_.live_bytes) return false;
    // This check runs once, and again only after another process wrote. In a large store it takes
    // longer than the deletion.
    if (pages.snapshot().transaction != checked_) PageCheck(pages).whole_tree();
    const std::uint64_t surplus = (live - options_.live_bytes) / pages.page_size() + 1;
    std::vector<std::string> victims;
    std::size_t entries = 0;
    const std::size_t first = next_;
    for (; next_ < entries_.size() && victims.size() < std::min<std::uint64_t>(per_transaction_, surplus);
         ++next_)
      entries += choose(pages, recent, entries_[next_], victims) ? 1 : 0;
    if (victims.empty()) return false;
    try {
      if (!writing->begin(options_.file_bytes, deadline_)) return false;
      check("evicting", erase(writing->txn(), writing->dbi(), victims));
      writing->commit();
      checked_ = pages.snapshot().transaction + 1;
    } catch (const LmdbError& error) {
      if (error.rc() != MDB_MAP_FULL || per_transaction_ <= kFewestPieces) throw;
      writing->abort();
      per_transaction_ /= 4;  // the same entries again, in smaller transactions
      next_ = first;
      return true;
    }
    evicted_ += entries;
    return true;
  }

  /// The entries in the order in which they go. Where all of them go, this is the order of keys: neighbours share
  /// pages of the tree, so each page is written once.
  std::vector<Surveyed> entries_in(const PageFile& pages, const RecentUses& recent) const {
    if (options_.is_of_all() || (options_.range && options_.live_bytes > 0))
      return survey_by_use(pages, recent, options_.range.value_or(kAllKeys));
    if (options_.range) return survey(pages, *options_.range);
    std::vector<Surveyed> out;
    for (const Key& key : *options_.keys)
      if (const auto pieces = pieces_of(pages, key).size())
        out.push_back({key, Surveyed::kNeverUsed, static_cast<std::uint32_t>(pieces)});
    return out;
  }

  /// The bytes that are to become fewer. For a range or keys, the bytes that were found and are not deleted yet.
  std::uint64_t live_bytes(const PageFile& pages) const {
    if (options_.is_of_all()) return pages.snapshot().live_bytes();
    std::uint64_t pieces = 0;
    for (std::size_t i = next_; i < entries_.size(); ++i) pieces += entries_[i].pieces;
    return pieces * pages.page_size();
  }

  /// Appends the tree's keys of an entry. An entry that was used meanwhile stays, unless a range or keys are
  /// meant.
  bool choose(const PageFile& pages, const RecentUses& recent, const Surveyed& entry,
              std::vector<std::string>& victims) {
    TreeCursor cursor(pages);
    const auto use = read_use(cursor, entry.key);
    if (options_.is_of_all() && use && entry.pieces > 0 && recent.later(entry.key, use->tick) != entry.tick)
      return false;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> values;
    for (std::string& key : pieces_of(pages, entry.key, &values)) victims.push_back(std::move(key));
    for (const auto& [page, size] : values) pages.check_overflow(page, size);
    if (use) victims.push_back(use_key(entry.key));
    return true;
  }

  /// LMDB reuses the pages that a transaction freed in the second transaction after it. This small
  /// transaction is the one between.
  void turn() {
    auto writing = enter();
    if (!writing) return;
    const PageFile pages = writing->pages();
    PageCheck check_first(pages);
    check_first.insertion(kTurnKey);
    if (!writing->begin(options_.file_bytes, deadline_)) return;
    std::int64_t tick = writing->tick();
    MDB_val key{kTurnKey.size(), const_cast<char*>(kTurnKey.data())}, value{sizeof tick, &tick};
    check("evicting", mdb_put(writing->txn(), writing->dbi(), &key, &value, 0));
    writing->commit();
  }

  static constexpr std::string_view kTurnKey = "t";

  StoreFile& file_;
  const EvictionOptions& options_;
  const base::Deadline deadline_;
  bool surveyed_ = false;
  std::vector<Surveyed> entries_;
  std::size_t next_ = 0, per_transaction_ = kEvictedPerTransaction;
  std::uint64_t evicted_ = 0,
                checked_ = kNoPage;  // checked_: the transaction whose state is known to be sane
};

}  // namespace

std::uint64_t evict(StoreFile& file, const EvictionOptions& options, base::Deadline deadline) {
  return Eviction(file, options, deadline).run();
}

}  // namespace kiln::cache
