#include "tests/fault/damage/mutation.hpp"

#include <cstring>
#include <functional>

namespace kiln::cache::test {
MutableFile::MutableFile(std::string bytes) : bytes_(std::move(bytes)) {}

template <typename T>
T MutableFile::at(std::size_t offset) const {
  T out{};
  if (fits(offset, sizeof out)) std::memcpy(&out, bytes_.data() + offset, sizeof out);
  return out;
}
template <typename T>
void MutableFile::set(std::size_t offset, T value) {
  if (fits(offset, sizeof value)) std::memcpy(bytes_.data() + offset, &value, sizeof value);
}
template std::uint16_t MutableFile::at(std::size_t) const;
template std::uint32_t MutableFile::at(std::size_t) const;
template std::uint64_t MutableFile::at(std::size_t) const;
template void MutableFile::set(std::size_t, std::uint16_t);
template void MutableFile::set(std::size_t, std::uint32_t);
template void MutableFile::set(std::size_t, std::uint64_t);

void MutableFile::set_sized(std::size_t offset, std::size_t size, std::uint64_t value) {
  if (fits(offset, size)) std::memcpy(bytes_.data() + offset, &value, size);
}
std::uint64_t MutableFile::at_sized(std::size_t offset, std::size_t size) const {
  std::uint64_t out = 0;
  if (fits(offset, size)) std::memcpy(&out, bytes_.data() + offset, size);
  return out;
}

std::size_t MutableFile::newest_meta() const {
  return at<std::uint64_t>(kTransaction) > at<std::uint64_t>(kPage + kTransaction) ? 0 : kPage;
}

std::size_t MutableFile::count_of(std::uint64_t page) const {
  const auto lower = at<std::uint16_t>(page * kPage + 12);
  return lower < kHeader || lower > kPage ? 0 : (lower - kHeader) / 2;
}

std::size_t MutableFile::node(std::uint64_t page, std::size_t index) const {
  return page * kPage + at<std::uint16_t>(page * kPage + kHeader + 2 * index);
}

std::vector<std::uint64_t> MutableFile::tree_pages(std::size_t root) const {
  std::vector<std::uint64_t> out;
  const std::uint64_t pages = bytes_.size() / kPage;
  const std::function<void(std::uint64_t, int)> walk = [&](std::uint64_t page, int depth) {
    if (page < 2 || page >= pages || depth > 8 || out.size() > pages) return;
    out.push_back(page);
    if ((at<std::uint16_t>(page * kPage + kFlags) & kBranch) == 0) return;
    for (std::size_t i = 0; i < count_of(page); ++i) walk(at<std::uint32_t>(node(page, i)), depth + 1);
  };
  walk(at<std::uint64_t>(newest_meta() + root + kDbRoot), 0);
  return out;
}

std::vector<MutableFile::FreeList> MutableFile::free_lists() const {
  std::vector<FreeList> out;
  for (const std::uint64_t page : tree_pages(kFreeDb)) {
    if (at<std::uint16_t>(page * kPage + kFlags) != kLeaf) continue;
    for (std::size_t i = 0; i < count_of(page); ++i) {
      const std::size_t entry = node(page, i);
      const std::size_t data = entry + kNode + at<std::uint16_t>(entry + 6);
      if ((at<std::uint16_t>(entry + 4) & kBigData) == 0) {
        out.push_back({entry + kNode, data, 0});
      } else {
        const auto overflow = at<std::uint64_t>(data);
        if (overflow < bytes_.size() / kPage)
          out.push_back({entry + kNode, overflow * kPage + kHeader, overflow});
      }
    }
  }
  return out;
}

}  // namespace kiln::cache::test
