// The cached entries that come nearest to one that is asked for and not there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cache/store/store.hpp"
#include "compile/key/facts.hpp"
#include "compile/key/key.hpp"
#include "tools/kiln/store/key_difference.hpp"

namespace kiln::cli {

struct Asked {
  const compile::MadeKey& made;
  std::string unit, arch;
  std::vector<Parameter> parameters;
  std::string toolchain;       ///< only entries of toolchains that begin so
  bool with_toolchain = true;  ///< false: this host has no compiler, so that its half of the key says nothing
};

struct Near {
  Key key;
  std::string name;  ///< of the key, unlike those of the other entries
  compile::Facts facts;
  std::string directory;
  std::vector<KeyDifference> differences;  ///< one: cached, other: asked
  Distance distance;
};

struct Nearest {
  std::vector<Near> best;  ///< the nearest first; of equally near ones the newest
  std::uint64_t of_template = 0, entries = 0, unreadable = 0;
};

/// Reads the heads of all entries, and the key texts of a few. At most `most` of the best. Throws as
/// Store::list.
Nearest find_nearest(const std::vector<std::shared_ptr<cache::Store>>& stores, const Asked& asked,
                     std::size_t most);

}  // namespace kiln::cli
