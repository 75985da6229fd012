// A cursor and a walk over the trees of an LMDB file, on the pages that kiln reads itself
// (cache/store/file/pages.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/store/file/pages.hpp"

namespace kiln::cache {

/// A cursor that stands on one entry of a tree. Every step may throw Damaged. Not thread-safe.
class TreeCursor {
 public:
  /// `file` must outlive it.
  TreeCursor(const PageFile& file, const TreeRoot& root) : file_(file), root_(root) {}
  /// A cursor of the main tree.
  explicit TreeCursor(const PageFile& file) : TreeCursor(file, file.snapshot().main) {}
  /// Moves to the first entry whose key is not less than `key`; false when there is none.
  bool seek(std::string_view key);
  /// Moves to the next entry; false when there is none. REQUIRES: the cursor stands on an entry.
  bool next();
  bool stands() const noexcept { return !stack_.empty(); }
  std::string_view key() const { return leaf().key(stack_.back().index); }
  TreePage::Value value() const { return leaf().value(stack_.back().index); }

 private:
  struct Level {
    std::shared_ptr<const TreePage> page;
    std::size_t index;
  };
  const TreePage& leaf() const { return *stack_.back().page; }
  /// Goes from the last level down to a leaf. `key` decides the way; without a key it
  /// takes the first entries.
  void descend(std::uint64_t page, const std::string_view* key);
  bool step_to_next_leaf();

  const PageFile& file_;
  TreeRoot root_;
  std::uint64_t leaves_ = 0;           // passed since the last seek; more than there are pages is a circle
  std::vector<Level> stack_, before_;  // before_: of the last seek, for its pages
};

/// The bounds that the branches above set for a page's keys: low <= key < high. An empty bound sets none.
struct KeyBounds {
  std::string low, high;
  /// The bounds of a child of `branch`.
  KeyBounds of_child(const TreePage& branch, std::size_t index) const;
};
struct TreeVisitor {
  std::function<void(const TreePage&, const KeyBounds&)> page;
  std::function<void(const Damaged&)> damaged = {};
};
/// Visits every page of a tree, parents first. Damage goes to `visitor.damaged`, and the walk goes on with
/// what can still be reached. Without that function the damage is thrown.
void walk_tree(const PageFile& file, const TreeRoot& root, const TreeVisitor& visitor);

}  // namespace kiln::cache
