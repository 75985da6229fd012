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
  /// Of the main tree.
  explicit TreeCursor(const PageFile& file) : TreeCursor(file, file.snapshot().main) {}
  /// Moves to the first entry whose key is not less; false when there is none.
  bool seek(std::string_view key);
  /// REQUIRES: it stands on an entry.
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
  /// From the last level down to a leaf; the key decides the way, none takes the first entries.
  void descend(std::uint64_t page, const std::string_view* key);
  bool step_to_next_leaf();

  const PageFile& file_;
  TreeRoot root_;
  std::uint64_t leaves_ = 0;           // since the last seek: more than there are pages is a circle
  std::vector<Level> stack_, before_;  // before_: of the last seek; neighbours share their pages
};

/// Visits every page of a tree, parents first. Damage goes to `damaged` with the page it was found in, and
/// the walk goes on with what can still be reached; without `damaged` it is thrown.
/// What the branches above say of a page's keys: low <= key < high; an empty one bounds nothing.
struct KeyBounds {
  std::string low, high;
  /// Those of a branch's child.
  KeyBounds of_child(const TreePage& branch, std::size_t index) const;
};
struct TreeVisitor {
  std::function<void(const TreePage&, const KeyBounds&)> page;
  std::function<void(const Damaged&)> damaged = {};
};
void walk_tree(const PageFile& file, const TreeRoot& root, const TreeVisitor& visitor);

}  // namespace kiln::cache
