// Many records in one transaction: what an import writes, and what waits for the publisher.
#include <algorithm>
#include <chrono>

#include "cache/store/file/page_check.hpp"
#include "cache/store/store_parts.hpp"

namespace kiln::cache {
namespace {

struct Encoded {
  std::size_t index;
  const Key* key;
  std::string bytes;
};

/// Those that are not there, ordered by key. One that is there with other bytes is left to a single put,
/// which replaces it, and so is a key that comes twice: nothing is returned.
std::optional<std::vector<Encoded>> missing_of(const PageFile& pages,
                                               const std::vector<std::pair<Key, Record>>& records,
                                               std::vector<PutResult>& out) {
  std::vector<Encoded> missing;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto& [key, record] = records[i];
    Buffer there;
    const Copied copied = copy_record(pages, key, there);
    if (copied == Copied::damaged) return std::nullopt;
    if (copied == Copied::complete) {
      const auto found = decode(there.view());
      if (!found || found->key_text != record.key_text) return std::nullopt;
      out[i].put = Put::present;
      continue;
    }
    if (!pieces_of(pages, key).empty()) return std::nullopt;
    missing.push_back({i, &key, encode(record)});
    if (missing.back().bytes.size() > kMaxRecordBytes) return std::nullopt;
  }
  std::sort(missing.begin(), missing.end(),
            [](const Encoded& a, const Encoded& b) { return *a.key < *b.key; });
  const auto twice = std::adjacent_find(missing.begin(), missing.end(),
                                        [](const Encoded& a, const Encoded& b) { return *a.key == *b.key; });
  if (twice != missing.end()) return std::nullopt;
  return missing;
}

}  // namespace

bool Store::Impl::write_many(const std::vector<std::pair<Key, Record>>& records,
                             std::vector<PutResult>& out) {
  if (!file.writable) return false;
  const auto deadline = base::Deadline::after(options.put_wait);
  std::optional<Writing> writing;
  std::string why;
  if (enter_writing(deadline, writing, why) != Entered::yes) return false;
  const PageFile pages = writing->pages();
  const auto missing = missing_of(pages, records, out);
  if (!missing) return false;
  if (missing->empty()) return true;

  std::uint64_t needed = 0;
  WriteCheck check_first(pages);
  const TreeRoot& tree = pages.snapshot().main;
  if (!tree_checked && tree.branch_pages + tree.leaf_pages <= kPagesCheckedAtFirst) {
    check_first.whole_tree();
    tree_checked = true;
  }
  for (const Encoded& record : *missing) {
    const std::uint64_t pieces = record.bytes.size() / kPieceBytes + 1;
    needed += (pieces + kTreePagesPerPut) * pages.page_size();
    for (std::size_t piece = 0; piece < pieces; ++piece) check_first.insertion(piece_key(*record.key, piece));
    check_first.insertion(use_key(*record.key));
  }
  if (!fits(pages.snapshot().live_bytes() + needed)) return false;
  const std::uint64_t wanted = writing->file_bytes() + needed + kTreeSlack;
  if (!writing->begin(std::min(wanted, options.cap_bytes), deadline)) return false;
  for (const Encoded& record : *missing) {
    check("put", write_record(writing->txn(), writing->dbi(), *record.key, record.bytes));
    check("put", write_use(writing->txn(), writing->dbi(), *record.key, fresh_use(writing->tick())));
  }
  writing->commit();
  for (const Encoded& record : *missing) out[record.index].put = Put::stored;
  return true;
}

std::vector<PutResult> Store::put_many(const std::vector<std::pair<Key, Record>>& records) noexcept {
  std::vector<PutResult> out(records.size());
  bool together = false;
  try {
    together = records.size() > 1 && impl_->write_many(records, out);
  } catch (const std::exception&) {  // room to be made, damage, a disk that failed: each by itself says which
  }
  std::chrono::milliseconds wait = put_wait();
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (together) {
      impl_->note_use(records[i].first, true);
      continue;
    }
    out[i] = put(records[i].first, records[i].second, wait);
    // Those behind one that waited in vain must not wait as long in a row.
    wait = out[i].put == Put::gate_timeout ? std::min(put_wait(), kWaitBehindOneInVain) : put_wait();
  }
  return out;
}

}  // namespace kiln::cache
