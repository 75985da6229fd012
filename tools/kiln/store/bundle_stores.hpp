// The entries that can be exported: entries of the layers and of the stores that a compile asks,
// each key once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/bundle/format.hpp"
#include "compile/key/facts.hpp"
#include "tools/kiln/store/entries.hpp"

namespace kiln::cli {

class BundleStores {
 public:
  /// Opens the stores; creates nothing. Throws Error, Damaged (cache/store/file/pages.hpp).
  explicit BundleStores(const runtime::Config& config);

  /// Selects by template and arch.
  using Wanted = std::function<bool(const std::string& template_name, const std::string& arch)>;
  /// The keys of all wanted entries, tuned choices included. Resets `other_version` and `damaged`.
  std::vector<Key> keys(const Wanted& wanted);
  /// The keys of the wanted tuned choices only.
  std::vector<Key> choices(const Wanted& wanted);
  /// The keys of all blobs and their parts.
  std::vector<Key> blobs();
  /// The record in the form that a bundle holds, from the first store that has it undamaged. Stores are asked
  /// in the order of the lookup path. On a miss it gives the reason; a record of another version of kiln
  /// counts as absent.
  cache::Peeked<cache::Record> read(const Key& key);

  /// The record as the stores have it, with its times. Found as `read` finds it.
  cache::Peeked<cache::Record> record(const Key& key);

  const runtime::Places& places() const noexcept { return places_; }
  std::uint64_t other_version() const noexcept { return other_version_; }
  /// Keys of entries with damaged heads that `keys` met.
  const std::vector<std::string>& damaged() const noexcept { return damaged_; }

 private:
  cache::Peeked<cache::Record> record_in(cache::Store& store, const Key& key) const;

  runtime::Places places_;
  std::vector<std::shared_ptr<cache::Store>> stores_;  // in the order of the lookup path
  std::uint64_t other_version_ = 0;
  std::vector<std::string> damaged_;
};

}  // namespace kiln::cli
