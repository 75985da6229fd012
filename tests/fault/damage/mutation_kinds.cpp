// The kinds of change that a MutableFile can make.
#include <algorithm>
#include <cstring>

#include "tests/fault/damage/mutation.hpp"

namespace kiln::cache::test {
namespace {

struct Field {
  std::size_t offset, size;
};

std::string text(const char* what, std::uint64_t where, std::uint64_t value) {
  return std::string(what) + " at " + std::to_string(where) + " = " + std::to_string(value);
}

}  // namespace

std::uint64_t MutableFile::tree_page(Random& random) const {
  auto pages = tree_pages(kMainDb);
  const auto free = tree_pages(kFreeDb);
  for (int i = 0; i < 3; ++i) pages.insert(pages.end(), free.begin(), free.end());  // few, but all matter
  return pages.empty() ? 2 : pages[random() % pages.size()];
}

std::uint64_t MutableFile::any_page(Random& random) const {
  const std::uint64_t last = std::min<std::uint64_t>(last_page(), bytes_.size() / kPage);
  switch (random() % 8) {
    case 0:
      return random() % 2;
    case 1:
      return last + random() % 2;
    case 2:
    case 3:
    case 4:
      return tree_page(random);
    case 5:
      for (const FreeList& list : free_lists())
        if (list.overflow != 0 && random() % 2 == 0) return list.overflow;
      return 2 + random() % (last + 1);
    default:
      return 2 + random() % (last + 1);
  }
}

std::uint64_t MutableFile::value_for(Random& random, std::uint64_t now) const {
  constexpr std::uint64_t interesting[] = {
      0, 1, 2, 3, 7, 8, 16, 32, 255, 4096, 0x7fff, 0xffff, 0x7fffffff, kNoPageNumber, kNoPageNumber - 1};
  switch (random() % 5) {
    case 0:
      return interesting[random() % std::size(interesting)];
    case 1:
      return now + 1 + random() % 3;
    case 2:
      return now - 1 - random() % 3;
    case 3:
      return any_page(random);
    default:
      return now ^ std::uint64_t{1} << random() % 64;
  }
}

std::string MutableFile::mutate_meta(Random& random) {
  constexpr Field fields[] = {{10, 2}, {16, 4},  {20, 4},  {24, 8},  {32, 8},  {40, 4},  {44, 2}, {46, 2},
                              {48, 8}, {56, 8},  {64, 8},  {72, 8},  {80, 8},  {88, 4},  {92, 2}, {94, 2},
                              {96, 8}, {104, 8}, {112, 8}, {120, 8}, {128, 8}, {136, 8}, {144, 8}};
  const Field field = fields[random() % std::size(fields)];
  const auto which = random() % 4;  // 0, 1: newest; 2: older; 3: both
  const std::uint64_t value = value_for(random, at_sized(newest_meta() + field.offset, field.size));
  const std::size_t newest = newest_meta(), older = older_meta();
  if (which != 2) set_sized(newest + field.offset, field.size, value);
  if (which >= 2) set_sized(older + field.offset, field.size, value);
  return text("meta field", field.offset, value);
}

std::string MutableFile::mutate_pair_of_metas(Random& random) {
  const std::size_t newest = newest_meta(), older = older_meta();
  const auto transaction = at<std::uint64_t>(newest + kTransaction);
  switch (random() % 5) {
    case 0:
      set(older + kTransaction, transaction);
      return "two metas with one transaction";
    case 1:
      std::swap_ranges(bytes_.begin() + 16, bytes_.begin() + 152, bytes_.begin() + kPage + 16);
      return "metas swapped";
    case 2:
      std::memcpy(bytes_.data() + older + 16, bytes_.data() + newest + 16, 136);
      return "the newest meta twice";
    case 3:
      std::memcpy(bytes_.data() + newest + 16, bytes_.data() + older + 16, 136);
      return "the older meta twice";
    default:
      set(older + kTransaction, transaction + 1);
      return "the older meta is the newest";
  }
}

std::string MutableFile::mutate_header(Random& random) {
  constexpr Field fields[] = {{0, 8}, {8, 2}, {10, 2}, {12, 2}, {14, 2}, {12, 4}};
  const Field field = fields[random() % std::size(fields)];
  const std::uint64_t page = random() % 3 == 0 ? any_page(random) : tree_page(random);
  const std::uint64_t value = value_for(random, at_sized(page * kPage + field.offset, field.size));
  set_sized(page * kPage + field.offset, field.size, value);
  return "page " + std::to_string(page) + ' ' + text("header field", field.offset, value);
}

std::string MutableFile::mutate_node(Random& random) {
  const std::uint64_t page = tree_page(random);
  const std::size_t count = count_of(page);
  if (count == 0) return "nothing";
  const std::size_t index = random() % count, entry = node(page, index);
  const std::string where = "page " + std::to_string(page) + " node " + std::to_string(index) + ' ';
  switch (random() % 5) {
    case 0: {
      const std::size_t pointer = page * kPage + kHeader + 2 * index;
      const std::size_t other = page * kPage + kHeader + 2 * (random() % count);
      const auto a = at<std::uint16_t>(pointer), b = at<std::uint16_t>(other);
      set(pointer, b);
      if (random() % 2 == 0) set(other, a);
      return where + "pointer";
    }
    case 1: {  // moves the border of key and data; the node's size stays
      const auto shift = static_cast<std::uint16_t>(8 - 16 * (random() % 2));
      set(entry + 6, static_cast<std::uint16_t>(at<std::uint16_t>(entry + 6) + shift));
      set(entry, static_cast<std::uint16_t>(at<std::uint16_t>(entry) - shift));
      return where + "border of key and data";
    }
    case 2: {
      const std::size_t key = at<std::uint16_t>(entry + 6);
      if (key == 0 || key > 511) return "nothing";
      const std::size_t byte = entry + kNode + random() % key;
      if (byte < bytes_.size()) bytes_[byte] ^= static_cast<char>(1 << random() % 8);
      return where + "key byte";
    }
    default: {
      constexpr Field fields[] = {{0, 2}, {2, 2}, {4, 2}, {6, 2}, {0, 4}};
      const Field field = fields[random() % std::size(fields)];
      const std::uint64_t value = value_for(random, at_sized(entry + field.offset, field.size));
      set_sized(entry + field.offset, field.size, value);
      return where + text("field", field.offset, value);
    }
  }
}

/// Replaces a child, or the first page of a value, by another existing page.
std::string MutableFile::mutate_child(Random& random) {
  const std::uint64_t page = tree_page(random), to = any_page(random);
  const std::size_t count = count_of(page);
  if (count == 0) return "nothing";
  const std::size_t index = random() % count, entry = node(page, index);
  if (at<std::uint16_t>(page * kPage + kFlags) == kBranch)
    set(entry, static_cast<std::uint32_t>(to));
  else if ((at<std::uint16_t>(entry + 4) & kBigData) != 0)
    set(entry + kNode + at<std::uint16_t>(entry + 6), to);
  return "page " + std::to_string(page) + " node " + std::to_string(index) + " leads to " +
         std::to_string(to);
}

std::string MutableFile::mutate_free_list(Random& random) {
  const auto lists = free_lists();
  if (lists.empty()) return "nothing";
  const FreeList list = lists[random() % lists.size()];
  const auto count = at<std::uint64_t>(list.count);
  const auto entry = [&](std::uint64_t i) { return list.count + 8 * (1 + i); };
  if (count == 0 || count > bytes_.size() / 8 || entry(count) > bytes_.size()) return "nothing";
  switch (random() % 6) {
    case 0: {
      const std::uint64_t value = random() % 2 == 0 ? random() % (count + 3) : value_for(random, count);
      set(list.count, value);
      return text("free list's count", list.count, value);
    }
    case 1: {
      const std::uint64_t value = value_for(random, at<std::uint64_t>(list.key));
      set(list.key, value);
      return text("free list's transaction", list.key, value);
    }
    case 2:
      set(entry(random() % count), at<std::uint64_t>(entry(random() % count)));
      return "a free page twice";
    case 3: {  // one page in two lists
      const FreeList other = lists[random() % lists.size()];
      set(entry(random() % count), at<std::uint64_t>(other.count + 8));
      return "a free page in two lists";
    }
    default: {  // a page that is in use, where the list's order allows it
      const std::uint64_t page = list.overflow != 0 && random() % 3 == 0 ? list.overflow : any_page(random);
      for (std::uint64_t i = 0; i < count; ++i) {
        const auto before = i > 0 ? at<std::uint64_t>(entry(i - 1)) : kNoPageNumber;
        const auto after = i + 1 < count ? at<std::uint64_t>(entry(i + 1)) : 1;
        if (before <= page || after >= page) continue;
        set(entry(i), page);
        return text("free list names used page", entry(i), page);
      }
      return "nothing";
    }
  }
}

std::string MutableFile::move_page(Random& random) {
  const std::uint64_t a = tree_page(random), b = any_page(random);
  const std::uint64_t pages = bytes_.size() / kPage;
  if (a >= pages || b >= pages || b < 2) return "nothing";
  const auto at_a = bytes_.begin() + static_cast<std::ptrdiff_t>(a * kPage);
  const auto at_b = bytes_.begin() + static_cast<std::ptrdiff_t>(b * kPage);
  const bool both = random() % 2 == 0;
  if (both)
    std::swap_ranges(at_a, at_a + kPage, at_b);
  else
    std::copy(at_b, at_b + kPage, at_a);
  if (random() % 4 != 0) set(a * kPage, a), set(b * kPage, b);
  return std::string(both ? "swapped" : "copied") + " pages " + std::to_string(a) + " and " +
         std::to_string(b);
}

std::string MutableFile::flip(Random& random) {
  const std::size_t offset =
      random() % 3 == 0 ? random() % bytes_.size() : tree_page(random) * kPage + random() % kPage;
  if (offset >= bytes_.size()) return "nothing";
  bytes_[offset] ^= static_cast<char>(1 << random() % 8);
  return text("flipped bit", offset, static_cast<unsigned char>(bytes_[offset]));
}

std::string MutableFile::mutate(Random& random) {
  switch (random() % 10) {
    case 0:
    case 1:
      return mutate_meta(random);
    case 2:
      return mutate_pair_of_metas(random);
    case 3:
      return mutate_header(random);
    case 4:
      return mutate_node(random);
    case 5:
      return mutate_child(random);
    case 6:
    case 7:
      return mutate_free_list(random);
    case 8:
      return move_page(random);
    default:
      return flip(random);
  }
}

}  // namespace kiln::cache::test
