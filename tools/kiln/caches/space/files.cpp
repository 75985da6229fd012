#include "tools/kiln/caches/space/files.hpp"

#include <optional>
#include <set>

#include "base/quote.hpp"
#include "base/wire.hpp"
#include "cache/blob/blob.hpp"
#include "tools/kiln/caches/tree/listing.hpp"
#include "tools/kiln/store/bundle_stores.hpp"
#include "tools/kiln/store/whole_blob.hpp"

namespace kiln::cli {
namespace {

/// The list of files that the record of a directory has; nothing when it cannot be read.
std::optional<Tree> list_of(const StoredBlob& blob, BundleStores& stores) try {
  const auto record = [&](const Key& key) { return stores.record(key); };
  const auto head = record(cache::blob_key({blob.space, blob.compatibility, blob.key}).key);
  if (!head) return std::nullopt;
  const auto content = whole_blob(cache::decode_blob(head->facts), *head, record);
  return content ? std::optional(decode_tree(content->view)) : std::nullopt;
} catch (const base::Malformed&) {
  return std::nullopt;
}

void add_files(const Tree& tree, std::set<std::string>& out) {
  for (const TreeEntry& entry : tree.entries)
    if (entry.is_file()) out.insert(entry.digest.hex());
}

}  // namespace

bool is_of_directories(const std::string& space) { return space == "dir" || space.starts_with("dir."); }

std::set<std::string> files_named_by(const std::vector<const StoredBlob*>& records,
                                     const runtime::Config& config) {
  std::set<std::string> out;
  BundleStores stores(config);
  for (const StoredBlob* record : records)
    if (const auto tree = list_of(*record, stores)) add_files(*tree, out);
  return out;
}

UnnamedFiles unnamed_files(const runtime::Config& config, const BlobScan& scan,
                           const std::set<std::string>& going, const std::vector<const StoredBlob*>& gone) {
  UnnamedFiles out;
  BundleStores stores(config);
  std::set<std::string> staying;
  const std::set<const StoredBlob*> is_gone(gone.begin(), gone.end());
  for (const StoredBlob& blob : scan.blobs) {
    if (!is_of_directories(blob.space) || is_gone.contains(&blob)) continue;
    const auto tree = list_of(blob, stores);
    if (!tree) {
      out.unreadable = "the record " + base::quote(blob.key, 60) + " of space " + blob.space;
      return out;
    }
    add_files(*tree, staying);
  }
  for (const StoredBlob& blob : scan.blobs) {
    if (blob.space != kFileSpace || blob.directory != scan.directory || staying.contains(blob.key) ||
        !going.contains(blob.key))
      continue;
    out.files.push_back(&blob);
    out.bytes += blob.stored_bytes;
  }
  return out;
}

}  // namespace kiln::cli
