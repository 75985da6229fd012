// The entries that can be exported: those of the layers and of the stores that a compile asks, each key once.
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
  /// Nothing is created. Throws Error, Damaged (cache/store/file/pages.hpp).
  explicit BundleStores(const runtime::Config& config);

  /// By template and arch.
  using Wanted = std::function<bool(const std::string& template_name, const std::string& arch)>;
  /// The keys of all entries that are wanted, tuned choices too. Begins `other_version` and `damaged` again.
  std::vector<Key> keys(const Wanted& wanted);
  /// Of the tuned choices alone.
  std::vector<Key> choices(const Wanted& wanted);
  /// As a bundle has it, from the first store that has it whole, in the order in which the path asks them.
  /// Where none has, why; an entry that another version of kiln replaced since `keys` counts as absent.
  cache::Peeked<cache::Record> read(const Key& key);

  /// The same as the stores have it, with its times.
  cache::Peeked<cache::Record> record(const Key& key);

  const runtime::Places& places() const noexcept { return places_; }
  std::uint64_t other_version() const noexcept { return other_version_; }
  /// Entries whose heads are damaged, met by `keys`.
  const std::vector<std::string>& damaged() const noexcept { return damaged_; }

 private:
  cache::Peeked<cache::Record> record_in(cache::Store& store, const Key& key) const;

  runtime::Places places_;
  std::vector<std::shared_ptr<cache::Store>> stores_;  // in the order in which the path asks them
  std::uint64_t other_version_ = 0;
  std::vector<std::string> damaged_;
};

}  // namespace kiln::cli
