#include "cache/store/file/pages.hpp"

#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

namespace kiln::cache {
namespace {

// The structures on disk, on 64-bit little-endian machines (mdb.c: MDB_page, MDB_node, MDB_meta, MDB_db).
struct PageHeader {
  std::uint64_t page;
  std::uint16_t pad, flags;
  union {
    struct {
      std::uint16_t lower, upper;
    } bounds;
    std::uint32_t pages;
  };
};
struct NodeHeader {
  std::uint16_t low, high, flags, key_size;
};
struct DiskDb {
  std::uint32_t page_size;  // md_pad, which the free list's entry uses for the page size
  std::uint16_t flags, depth;
  std::uint64_t branch_pages, leaf_pages, overflow_pages, entries, root;
};
struct DiskMeta {
  PageHeader header;
  std::uint32_t magic, version;
  std::uint64_t address, map_size;
  DiskDb free, main;
  std::uint64_t last_page, transaction;
};
static_assert(sizeof(PageHeader) == 16 && sizeof(NodeHeader) == 8 && sizeof(DiskDb) == 48 &&
              sizeof(DiskMeta) == 152);

constexpr std::uint32_t kLmdbMagic = 0xBEEFC0DE, kVersion = 1;
constexpr std::uint16_t kBranch = 0x01, kLeaf = 0x02, kOverflow = 0x04, kMeta = 0x08;
constexpr std::uint16_t kBigData = 0x01;
constexpr std::uint64_t kMaxDepth = 32;
constexpr std::size_t kMaxKey = 511;
constexpr std::uint32_t kSmallestPage = 512, kLargestPage = 0x8000;

[[noreturn]] void damaged_page(std::uint64_t page, const std::string& why) {
  throw Damaged("page " + std::to_string(page) + ": " + why);
}

std::optional<TreeRoot> root_of(const DiskDb& db, std::uint64_t last_page) noexcept {
  const bool in_file =
      db.root == kNoPage ? db.depth == 0 : db.root > 1 && db.root <= last_page && db.depth > 0;
  const auto few = [last_page](std::uint64_t pages) { return pages <= last_page + 1; };
  if (!in_file || db.depth > kMaxDepth || !few(db.branch_pages) || !few(db.leaf_pages) ||
      !few(db.overflow_pages))
    return std::nullopt;
  return TreeRoot{db.root, db.depth, db.branch_pages, db.leaf_pages, db.overflow_pages, db.entries};
}

std::optional<Snapshot> snapshot_of(const DiskMeta& meta) noexcept {
  const std::uint32_t size = meta.free.page_size;
  if ((meta.header.flags & kMeta) == 0 || meta.magic != kLmdbMagic || meta.version != kVersion)
    return std::nullopt;
  if (size < kSmallestPage || size > kLargestPage || (size & (size - 1)) != 0) return std::nullopt;
  if (meta.transaction >> 62 != 0) return std::nullopt;  // ticks of uses are signed
  if (meta.last_page < 1 || meta.last_page >= kNoPage / size / 2 || meta.main.flags != 0) return std::nullopt;
  const auto free = root_of(meta.free, meta.last_page), main = root_of(meta.main, meta.last_page);
  if (!free || !main) return std::nullopt;
  return Snapshot{size, meta.last_page, meta.transaction, *free, *main};
}

/// Returns how many bytes were there. A failed read is tried three times: an error may pass, and records that
/// are seen to be damaged are given up.
std::size_t read_at(int fd, void* out, std::size_t size, std::uint64_t offset) {
  std::size_t got = 0;
  for (int failures = 0; got < size;) {
    const ssize_t n =
        ::pread(fd, static_cast<char*>(out) + got, size - got, static_cast<off_t>(offset + got));
    if (n < 0 && (errno == EINTR || ++failures < 3)) continue;
    if (n < 0) throw Damaged("offset " + std::to_string(offset + got) + ": " + std::strerror(errno));
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  return got;
}

std::optional<Snapshot> snapshot_in(std::string_view bytes, std::size_t offset) {
  DiskMeta meta;
  if (offset + sizeof meta > bytes.size()) return std::nullopt;
  std::memcpy(&meta, bytes.data() + offset, sizeof meta);
  return snapshot_of(meta);
}

}  // namespace

Snapshot newest_snapshot(int fd, bool* both_sane) {
  std::array<char, kLargestPage + sizeof(DiskMeta)> metas;
  constexpr std::size_t usual = 4096 + sizeof(DiskMeta);
  std::string_view bytes(metas.data(), read_at(fd, metas.data(), usual, 0));
  const auto first = snapshot_in(bytes, 0);
  std::optional<Snapshot> second;
  if (!first || first->page_size > 4096) bytes = {metas.data(), read_at(fd, metas.data(), metas.size(), 0)};
  if (first) {
    second = snapshot_in(bytes, first->page_size);
  } else {
    for (std::uint32_t size = kSmallestPage; size <= kLargestPage && !second; size *= 2)
      if ((second = snapshot_in(bytes, size)) && second->page_size != size) second.reset();
  }
  const bool alike = first && second && first->page_size == second->page_size;
  if (both_sane) *both_sane = alike;
  if (!first && !second) throw Damaged("no valid meta page");
  if (first && second && !alike) throw Damaged("the two meta pages state different page sizes");
  if (!second) return *first;
  if (!first) return *second;
  return first->transaction >= second->transaction ? *first : *second;  // LMDB's choice, a tie included
}

ino_t PageFile::inode() const noexcept {
  struct stat st {};
  return ::fstat(fd_, &st) == 0 ? st.st_ino : 0;
}

void PageFile::check_length() const {
  struct stat st {};
  if (::fstat(fd_, &st) != 0) throw Damaged(std::strerror(errno));
  if (static_cast<std::uint64_t>(st.st_size) < snapshot_.bytes())
    throw Damaged("truncated to " + std::to_string(st.st_size) + " of " + std::to_string(snapshot_.bytes()) +
                  " bytes");
}

void PageFile::read_raw(std::uint64_t page, char* out) const {
  if (page < 2 || page > snapshot_.last_page) damaged_page(page, "outside the file");
  const std::uint64_t offset = page * snapshot_.page_size;
  if (read_at(fd_, out, snapshot_.page_size, offset) != snapshot_.page_size)
    damaged_page(page, "after the end of a truncated file");
}

void PageFile::read(std::uint64_t page, char* out) const {
  read_raw(page, out);
  PageHeader header;
  std::memcpy(&header, out, sizeof header);
  if (header.page != page) damaged_page(page, "says it is page " + std::to_string(header.page));
}

void PageFile::append_bodies(std::uint64_t first, std::size_t count, std::size_t size, Buffer& out) const {
  constexpr std::size_t kPagesPerCall = 256;
  const std::size_t body = snapshot_.page_size - TreePage::kHeader;
  if (first < 2 || first > snapshot_.last_page || count > snapshot_.last_page - first + 1)
    damaged_page(first, "outside the file");
  std::array<char, TreePage::kHeader> header;
  std::array<::iovec, 2 * kPagesPerCall> parts;
  while (count > 0) {
    const std::size_t now = std::min(count, kPagesPerCall);
    const std::size_t bytes = std::min(size, now * body);
    char* const to = out.grow(bytes);
    std::size_t used = 0, wanted = 0;
    for (std::size_t done = 0; done < bytes; done += body) {
      const std::size_t part = std::min(body, bytes - done);
      parts[used++] = {header.data(), header.size()};
      parts[used++] = {to + done, part};
      wanted += header.size() + part;
    }
    ssize_t got;
    do {
      got = ::preadv(fd_, parts.data(), static_cast<int>(used),
                     static_cast<off_t>(first * snapshot_.page_size));
    } while (got < 0 && errno == EINTR);
    if (got < 0 || static_cast<std::size_t>(got) != wanted)
      damaged_page(first, got < 0 ? std::strerror(errno) : "after the end of a truncated file");
    first += now, count -= now, size -= bytes;
  }
}

void PageFile::check_overflow(std::uint64_t page, std::uint64_t size) const {
  PageHeader header;
  if (page < 2 || page > snapshot_.last_page ||
      read_at(fd_, &header, sizeof header, page * snapshot_.page_size) != sizeof header)
    damaged_page(page, "outside the file");
  const std::uint64_t needed = (TreePage::kHeader + size + snapshot_.page_size - 1) / snapshot_.page_size;
  if (header.page != page || header.flags != kOverflow || header.pages != needed ||
      needed > snapshot_.last_page - page + 1)
    damaged_page(page, "it does not begin an overflow run of " + std::to_string(needed) + " pages");
}

struct TreePage::Node {
  std::size_t offset;
  NodeHeader header;
};

std::shared_ptr<const TreePage> TreePage::load(const PageFile& file, std::uint64_t page) {
  auto out = std::make_shared<TreePage>();
  out->number_ = page;
  out->size_ = file.page_size();
  out->last_page_ = file.snapshot().last_page;
  out->bytes_.reset(new char[out->size_]);
  file.read(page, out->bytes_.get());
  PageHeader header;
  std::memcpy(&header, out->bytes_.get(), sizeof header);
  if (header.flags != kBranch && header.flags != kLeaf) damaged_page(page, "neither a branch nor a leaf");
  const auto [lower, upper] = header.bounds;
  if (lower < kHeader || lower % 2 != 0 || upper < lower || upper > out->size_)
    damaged_page(page, "its bounds lie outside the page");
  out->kind_ = header.flags == kBranch ? Kind::branch : Kind::leaf;
  out->count_ = (lower - kHeader) / 2;
  out->upper_ = upper;
  if (out->count_ == 0) damaged_page(page, "empty");
  return out;
}

std::size_t TreePage::node_offset(std::size_t index) const {
  std::uint16_t offset;
  std::memcpy(&offset, bytes_.get() + kHeader + 2 * index, sizeof offset);
  return offset;
}

TreePage::Node TreePage::node(std::size_t index) const {
  Node out{node_offset(index), {}};
  if (out.offset < upper_ || out.offset % 2 != 0 || out.offset + sizeof(NodeHeader) > size_)
    damaged_page(number_, "an entry lies outside the page");
  std::memcpy(&out.header, bytes_.get() + out.offset, sizeof out.header);
  if (out.header.key_size > kMaxKey || out.offset + sizeof(NodeHeader) + out.header.key_size > size_)
    damaged_page(number_, "a key lies outside the page");
  return out;
}

std::string_view TreePage::key(std::size_t index) const {
  const Node at = node(index);
  return {bytes_.get() + at.offset + sizeof(NodeHeader), at.header.key_size};
}

std::uint64_t TreePage::child(std::size_t index) const {
  const NodeHeader at = node(index).header;
  return std::uint64_t{at.low} | std::uint64_t{at.high} << 16 | std::uint64_t{at.flags} << 32;
}

TreePage::Value TreePage::value(std::size_t index) const {
  const Node at = node(index);
  Value out;
  out.size = std::uint64_t{at.header.low} | std::uint64_t{at.header.high} << 16;
  const std::size_t data = at.offset + sizeof(NodeHeader) + at.header.key_size;
  if (at.header.flags == kBigData) {
    if (data + sizeof out.overflow > size_) damaged_page(number_, "a value lies outside the page");
    std::memcpy(&out.overflow, bytes_.get() + data, sizeof out.overflow);
    if (out.overflow < 2 || out.overflow > last_page_) damaged_page(number_, "a value lies outside the file");
  } else {
    if (at.header.flags != 0 || out.size > size_ - data)
      damaged_page(number_, "a value lies outside the page");
    out.bytes = {bytes_.get() + data, out.size};
  }
  return out;
}

std::size_t TreePage::node_bytes(std::size_t index) const {
  std::size_t bytes = sizeof(NodeHeader) + key(index).size();
  if (kind_ == Kind::leaf) {
    const Value at = value(index);
    bytes += at.overflow == kNoPage ? at.size : sizeof at.overflow;
  }
  return (bytes + 1) & ~std::size_t{1};
}

std::size_t TreePage::lower_bound(std::string_view wanted) const {
  std::size_t low = 0, high = count_;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (key(middle) < wanted)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

std::size_t TreePage::child_for(std::string_view wanted) const {
  std::size_t low = 1, high = count_;  // the first key of a branch stands for everything before the second
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (key(middle) <= wanted)
      low = middle + 1;
    else
      high = middle;
  }
  return low - 1;
}

}  // namespace kiln::cache
