#include "cache/store/file/page_check.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "cache/store/file/tree.hpp"

namespace kiln::cache {
namespace {

[[noreturn]] void damaged(const TreePage& page, const char* why) {
  throw Damaged("page " + std::to_string(page.number()) + ": " + why);
}

bool ascending(std::string_view a, std::string_view b, bool integers) {
  if (!integers) return a < b;
  std::uint64_t x, y;
  if (a.size() != sizeof x || b.size() != sizeof y) return false;
  std::memcpy(&x, a.data(), sizeof x), std::memcpy(&y, b.data(), sizeof y);
  return x < y;
}

void check_layout(const TreePage& page, bool integer_keys) {
  struct Extent {
    std::size_t offset, bytes;
  };
  std::vector<Extent> extents;
  extents.reserve(page.count());
  const bool branch = page.kind() == TreePage::Kind::branch;
  for (std::size_t i = 0; i < page.count(); ++i) {
    extents.push_back({page.node_offset(i), page.node_bytes(i)});
    const std::size_t first_with_key = branch ? 1 : 0;
    if (i > first_with_key && !ascending(page.key(i - 1), page.key(i), integer_keys))
      damaged(page, "keys out of order");
    if (!branch && page.key(i).empty()) damaged(page, "an empty key");
  }
  std::sort(extents.begin(), extents.end(), [](auto& a, auto& b) { return a.offset < b.offset; });
  std::size_t at = page.upper();
  for (const Extent& extent : extents) {
    if (extent.offset != at) damaged(page, "entries overlap or leave a gap");
    at += extent.bytes;
  }
  if (at != page.size()) damaged(page, "entries do not fill the page");
}

}  // namespace

void check_strictly(const TreePage& page, const KeyBounds& bounds) {
  check_layout(page, false);
  const std::size_t first = page.kind() == TreePage::Kind::branch ? 1 : 0;
  if (first >= page.count()) return;
  if (page.key(first) < bounds.low || (!bounds.high.empty() && page.key(page.count() - 1) >= bounds.high))
    damaged(page, "its keys lie outside the range that its parent gives");
}

void check_free_list_page(const TreePage& page) { check_layout(page, true); }

PageCheck::PageCheck(const PageFile& file) : file_(file) {
  file.check_length();
  free_.resize(file.snapshot().last_page + 1);
  walk_tree(file, file.snapshot().free, {[this](const TreePage& page, const KeyBounds&) {
              check_free_list_page(page);
              for (std::size_t i = 0; page.kind() == TreePage::Kind::leaf && i < page.count(); ++i)
                check_free_pages_of(page, i);
            }});
  // A page of the list's own tree that the list calls free would be overwritten while it is read.
  walk_tree(file, file.snapshot().free, {[this](const TreePage& page, const KeyBounds&) {
              must_be_used(page.number());
              if (page.kind() != TreePage::Kind::leaf) return;
              for (std::size_t i = 0; i < page.count(); ++i)
                if (const auto value = page.value(i); value.overflow != kNoPage)
                  for (std::uint64_t at = 0; at <= (TreePage::kHeader + value.size - 1) / page.size(); ++at)
                    must_be_used(value.overflow + at);
            }});
}

/// Checks one entry of the free list: a count, then that many page numbers in descending order.
void PageCheck::check_free_pages_of(const TreePage& leaf, std::size_t index) {
  const TreePage::Value value = leaf.value(index);
  std::string bytes(value.bytes);
  if (value.overflow != kNoPage) {
    file_.check_overflow(value.overflow, value.size);
    const std::size_t page = file_.page_size();
    bytes.resize((TreePage::kHeader + value.size + page - 1) / page * page);
    for (std::size_t done = 0; done < bytes.size(); done += page)
      file_.read_raw(value.overflow + done / page, bytes.data() + done);
    bytes = bytes.substr(TreePage::kHeader, value.size);
  }
  std::uint64_t count = 0, page = 0, before = kNoPage;
  if (bytes.size() < sizeof count || bytes.size() % sizeof page != 0)
    damaged(leaf, "its free list has an impossible size");
  std::memcpy(&count, bytes.data(), sizeof count);
  if (count > bytes.size() / sizeof page - 1) damaged(leaf, "its free list states more pages than it holds");
  for (std::uint64_t i = 1; i <= count; ++i, before = page) {
    std::memcpy(&page, bytes.data() + i * sizeof page, sizeof page);
    if (page < 2 || page >= free_.size() || page >= before || free_[page])
      damaged(leaf, "its free list names a page twice, out of order or outside the file");
    free_[page] = true;
    ++free_count_;
  }
}

void PageCheck::must_be_used(std::uint64_t page) const {
  if (page < free_.size() && free_[page])
    throw Damaged("page " + std::to_string(page) + ": in use and in the free list");
}

const TreePage& PageCheck::checked(std::uint64_t number, TreePage::Kind kind, const KeyBounds& bounds) {
  auto& page = checked_[number];
  if (!page) {
    must_be_used(number);
    auto loaded = TreePage::load(file_, number);
    check_strictly(*loaded, bounds);
    page = std::move(loaded);
  }
  if (page->kind() != kind) damaged(*page, "at the wrong depth of its tree");
  // LMDB asserts that a branch has at least two children.
  if (kind == TreePage::Kind::branch && page->count() < 2) damaged(*page, "a branch with one child");
  return *page;
}

void PageCheck::insertion(std::string_view key) {
  const TreeRoot& root = file_.snapshot().main;
  std::uint64_t page = root.page;
  KeyBounds bounds;
  for (std::uint64_t depth = root.depth; depth > 0; --depth) {
    const TreePage& at = checked(page, depth == 1 ? TreePage::Kind::leaf : TreePage::Kind::branch, bounds);
    if (depth == 1) {
      const std::size_t index = at.lower_bound(key);
      if (index < at.count() && at.key(index) == key && at.value(index).overflow != kNoPage)
        damaged(at, "a small value lies in overflow pages");
      return;
    }
    const std::size_t index = at.child_for(key);
    page = at.child(index);
    bounds = bounds.of_child(at, index);
  }
}

void PageCheck::whole_tree() {
  std::vector<bool> used(free_.size());
  std::uint64_t branches = 0, leaves = 0, values = 0;
  const auto take = [&](const TreePage& by, std::uint64_t page) {
    must_be_used(page);
    if (used[page]) damaged(by, "it names a page that is in use twice");
    used[page] = true;
  };
  walk_tree(file_, file_.snapshot().main, {[&](const TreePage& page, const KeyBounds& bounds) {
              take(page, page.number());
              check_strictly(page, bounds);
              if (page.kind() == TreePage::Kind::branch) {
                if (page.count() < 2) damaged(page, "a branch with one child");
                ++branches;
                return;
              }
              ++leaves;
              for (std::size_t i = 0; i < page.count(); ++i) {
                const std::uint64_t value = page.value(i).overflow;
                if (value == kNoPage) continue;
                take(page, value);
                values += (TreePage::kHeader + page.value(i).size + page.size() - 1) / page.size();
              }
            }});
  const TreeRoot& root = file_.snapshot().main;
  if (root.branch_pages != branches || root.leaf_pages != leaves || root.overflow_pages != values)
    throw Damaged("the meta page's counts of pages do not match the tree");
}

}  // namespace kiln::cache
