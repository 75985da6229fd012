#include "tools/kiln/caches/directory/push.hpp"

#include "tools/kiln/caches/space/blobs.hpp"
#include "tools/kiln/caches/tree/capture.hpp"
#include "tools/kiln/store/bundle_stores.hpp"

namespace kiln::cli {
namespace {

Pushed push_keys(const std::set<Key>& keys, fleet::Tier& tier, BundleStores& stores, bool quiet) {
  return push_entries(
      tier, {keys.begin(), keys.end()}, [&](const Key& key) { return stores.record(key); }, quiet);
}

}  // namespace

Pushed push_captured(const Target& target, const Tree& tree, fleet::Tier& tier, const runtime::Config& config,
                     bool quiet) {
  std::set<Key> files;
  for (const TreeEntry& entry : tree.entries)
    if (entry.is_file())
      files.insert(cache::blob_key({kFileSpace, kFileCompatibility, entry.digest.hex()}).key);
  BundleStores stores(config);
  Pushed out = push_keys(files, tier, stores, quiet);
  if (out.covers_all())
    out += push_keys({cache::blob_key(target.record).key}, tier, stores, true);
  else
    ++out.entries, ++out.left;  // the record, which must not name files that are not there
  return out;
}

Pushed push_spaces(const std::set<std::string>& spaces, fleet::Tier& tier, const runtime::Config& config,
                   bool quiet) {
  std::set<Key> keys;
  for (const std::string& space : spaces)
    for (const StoredBlob& blob : scan_blobs(config, space).blobs)
      keys.insert(cache::blob_key({blob.space, blob.compatibility, blob.key}).key);
  BundleStores stores(config);
  return push_keys(keys, tier, stores, quiet);
}

}  // namespace kiln::cli
