// The cached entries that are nearest to one that was asked for and is not cached.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cache/store/store.hpp"
#include "compile/key/facts.hpp"
#include "compile/key/key.hpp"
#include "tools/kiln/store/key/difference.hpp"

namespace kiln::cli {

struct Asked {
  const compile::MadeKey& made;
  std::string unit, arch;
  std::vector<Parameter> parameters;
  std::string toolchain;       ///< only entries whose toolchain digest begins with this
  bool with_toolchain = true;  ///< false: there is no compiler here, so that half is not known
};

struct Near {
  Key key;
  std::string name;  ///< short name of the key, unique among all entries
  compile::Facts facts;
  std::string directory;
  std::vector<KeyDifference> differences;  ///< one: cached, other: asked
  Distance distance;
};

struct Nearest {
  std::vector<Near> best;  ///< nearest first; of equally near entries, the newest first
  std::uint64_t of_template = 0, entries = 0, unreadable = 0;
};

/// Reads the heads of all entries and the key texts of a few. Returns at most `most` entries. Throws as
/// Store::list.
Nearest find_nearest(const std::vector<std::shared_ptr<cache::Store>>& stores, const Asked& asked,
                     std::size_t most);

}  // namespace kiln::cli
