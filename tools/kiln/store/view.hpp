// Stores as inspection sees them: opened read-only, never created.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/store/store.hpp"
#include "runtime/config/config.hpp"
#include "runtime/state/places.hpp"

namespace kiln::cli {

/// The store that a compile with this configuration would use.
struct StorePlace {
  std::string directory;  ///< where the store is, or would be made; empty: nowhere
  bool there = false;     ///< it has a file
};
StorePlace find_store(const runtime::Config& config);

struct StoreView {
  std::string directory;                ///< where the store is, or would be made
  std::shared_ptr<cache::Store> store;  ///< null: nothing has been cached there yet
};
/// Opens the store of `find_store`. Throws Error(io) when the store exists and cannot be read, and Damaged
/// (cache/store/file/pages.hpp) when it has no valid meta page.
StoreView view_store(const runtime::Config& config);

/// The stores that a compile with this configuration asks after the layers. They are found as
/// runtime::open_store finds them, with every fallback to a further place.
struct PlacesView {
  std::string directory;   ///< where the writable store is, or would be made; empty: nowhere
  runtime::Places places;  ///< opened read-only, `writable` too; null: nothing has been cached there yet
};
/// Throws as view_store does. A read-only store that others may write cannot be a layer. It is left out, as a
/// compile leaves it out.
PlacesView view_places(const runtime::Config& config);

/// Returns the result of `read(store)` for the first store that has it. When none has it, returns the first
/// miss reason other than absence.
template <class Read>
auto read_first(const std::vector<std::shared_ptr<cache::Store>>& stores, const Read& read) {
  decltype(read(*stores.front())) out;
  for (const auto& store : stores) {
    auto got = read(*store);
    if (got) return got;
    if (out.miss == cache::Miss::absent) out.miss = got.miss;
  }
  return out;
}

}  // namespace kiln::cli
