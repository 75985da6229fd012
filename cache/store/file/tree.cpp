#include "cache/store/file/tree.hpp"

#include <unordered_set>

namespace kiln::cache {
namespace {

using Seen = std::unordered_set<std::uint64_t>;

void walk(const PageFile& file, std::uint64_t number, std::uint64_t depth, const KeyBounds& bounds,
          const TreeVisitor& visitor, Seen& seen) {
  try {
    const auto page = TreePage::load(file, number);
    const auto expected = depth == 1 ? TreePage::Kind::leaf : TreePage::Kind::branch;
    if (page->kind() != expected)
      throw Damaged("page " + std::to_string(number) + ": at the wrong depth of its tree");
    if (!seen.insert(number).second) throw Damaged("page " + std::to_string(number) + ": in the tree twice");
    visitor.page(*page, bounds);
    if (depth == 1) return;
    for (std::size_t i = 0; i < page->count(); ++i) {
      std::uint64_t child = kNoPage;
      KeyBounds of_child;
      try {
        child = page->child(i);
        of_child = bounds.of_child(*page, i);
      } catch (const Damaged& damage) {
        if (!visitor.damaged) throw;
        visitor.damaged(damage);
        continue;
      }
      walk(file, child, depth - 1, of_child, visitor, seen);
    }
  } catch (const Damaged& damage) {
    if (!visitor.damaged) throw;
    visitor.damaged(damage);
  }
}

}  // namespace

KeyBounds KeyBounds::of_child(const TreePage& branch, std::size_t index) const {
  KeyBounds out = *this;
  if (index > 0) out.low = branch.key(index);
  if (index + 1 < branch.count()) out.high = branch.key(index + 1);
  return out;
}

void TreeCursor::descend(std::uint64_t page, const std::string_view* key) {
  while (stack_.size() < root_.depth) {
    const std::size_t level = stack_.size();
    const bool known = level < before_.size() && before_[level].page->number() == page;
    auto loaded = known ? before_[level].page : TreePage::load(file_, page);
    const bool last = stack_.size() + 1 == root_.depth;
    if ((loaded->kind() == TreePage::Kind::leaf) != last)
      throw Damaged("page " + std::to_string(page) + ": at the wrong depth of its tree");
    std::size_t index = 0;
    if (key) index = last ? loaded->lower_bound(*key) : loaded->child_for(*key);
    if (!last) page = loaded->child(index);
    stack_.push_back({std::move(loaded), index});
  }
}

bool TreeCursor::seek(std::string_view key) {
  before_.swap(stack_);
  stack_.clear();
  leaves_ = 0;
  if (root_.page == kNoPage) return false;
  descend(root_.page, &key);
  return stack_.back().index < leaf().count() || step_to_next_leaf();
}

bool TreeCursor::next() { return ++stack_.back().index < leaf().count() || step_to_next_leaf(); }

bool TreeCursor::step_to_next_leaf() {
  if (++leaves_ > file_.snapshot().last_page) throw Damaged("the tree has a cycle");
  do {
    stack_.pop_back();
    if (stack_.empty()) return false;
  } while (++stack_.back().index >= stack_.back().page->count());
  descend(stack_.back().page->child(stack_.back().index), nullptr);
  return true;
}

void walk_tree(const PageFile& file, const TreeRoot& root, const TreeVisitor& visitor) {
  Seen seen;
  if (root.page != kNoPage) walk(file, root.page, root.depth, {}, visitor, seen);
}

}  // namespace kiln::cache
