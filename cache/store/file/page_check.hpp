// The page check decides whether LMDB may write: LMDB trusts every page that it touches, and on a damaged
// page it crashes or hands out a page twice.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/store/file/tree.hpp"

namespace kiln::cache {

/// Checks one snapshot under the gate's W, so that nobody else changes the file. Everything throws Damaged.
class PageCheck {
 public:
  /// Checks the whole free list. LMDB may touch any part of it, and overwrites the pages that it names.
  explicit PageCheck(const PageFile& file);
  /// Checks the pages through which an insertion of `key` goes.
  void insertion(std::string_view key);
  /// Checks every page of the tree, and that none is used twice or is free. Deletions need this, as they
  /// also merge neighbouring pages.
  void whole_tree();
  /// Pages that a later transaction may reuse.
  std::uint64_t free_pages() const noexcept { return free_count_; }

 private:
  const TreePage& checked(std::uint64_t page, TreePage::Kind kind, const KeyBounds& bounds);
  void check_free_pages_of(const TreePage& leaf, std::size_t index);
  void must_be_used(std::uint64_t page) const;

  const PageFile& file_;
  std::vector<bool> free_;
  std::uint64_t free_count_ = 0;
  std::unordered_map<std::uint64_t, std::shared_ptr<const TreePage>> checked_;
};

/// Throws Damaged unless the page's entries fill it without gap or overlap, in strictly ascending order and
/// within the bounds. LMDB relies on this when it searches and moves entries.
void check_strictly(const TreePage& page, const KeyBounds& bounds);
/// Checks a page of the free list in the same way. Its keys are integers, and it has no bounds.
void check_free_list_page(const TreePage& page);

}  // namespace kiln::cache
