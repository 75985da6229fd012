// Helpers for tests of healing: damage at a chosen place, and the state of the file afterwards.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>
#include <string_view>

#include "base/fd.hpp"
#include "cache/store/file/pieces.hpp"
#include "tests/fault/store/fixture.hpp"

namespace kiln::cache::test {

class HealFixture : public FaultFixture {
 protected:
  static constexpr std::size_t kPage = 4096, kLarge = 100'000;

  std::shared_ptr<Store> open_with_cap(std::uint64_t cap) const {
    StoreOptions o = options();
    o.cap_bytes = cap;
    return Store::open(o);
  }
  /// Returns true when a put of a record of 100,000 bytes needs eviction first.
  static bool is_full(Store& store) {
    const StoreStats now = store.stats();
    return now.live_bytes + (26 + 64) * kPage > now.cap_bytes / 10 * 9;
  }
  /// Puts records of 100,000 bytes until the next put would evict. Returns their number. A child does it, so
  /// that this process's own first put finds the damage.
  std::uint32_t fill_to_the_cap(std::uint64_t cap) const {
    Shared<std::uint32_t> count;
    EXPECT_EQ(child([&] {
                const auto store = open_with_cap(cap);
                for (; !is_full(*store); ++*count)
                  if (store->put(record_of(*count, kLarge)).put != Put::stored) return 1;
                return 0;
              }),
              0);
    return *count;
  }
  static ino_t inode_of(const std::string& path) {
    struct stat st {};
    return ::stat(path.c_str(), &st) == 0 ? st.st_ino : 0;
  }
  ino_t inode() const { return inode_of(data_file()); }
  bool exists(const std::string& path) const { return ::access(path.c_str(), F_OK) == 0; }
  std::string damaged_file() const { return data_file() + ".damaged"; }

  void poke(std::uint64_t at, const void* bytes, std::size_t size) const {
    const base::Fd fd(::open(data_file().c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(::pwrite(fd.get(), bytes, size, static_cast<off_t>(at)), static_cast<ssize_t>(size));
  }
  std::uint64_t u64_at(std::uint64_t at) const {
    std::uint64_t out = 0;
    std::memcpy(&out, base::read_file(data_file())->bytes.data() + at, sizeof out);
    return out;
  }
  /// Makes the free space of every leaf that has the record begin at an odd
  /// byte. At least one leaf must be damaged.
  void damage_leaves_of(std::uint32_t number) const {
    const std::string file = base::read_file(data_file())->bytes, key = piece_key(key_of(number), 0);
    constexpr std::uint16_t kLeaf = 2;
    int damaged = 0;
    for (std::size_t at = 2 * kPage; at + kPage <= file.size(); at += kPage) {
      std::uint16_t flags = 0, lower = 0;
      std::memcpy(&flags, &file[at + 10], sizeof flags);
      std::memcpy(&lower, &file[at + 12], sizeof lower);
      if (flags != kLeaf || std::string_view(file).substr(at, kPage).find(key) == std::string_view::npos)
        continue;
      lower |= 1;
      poke(at + 12, &lower, sizeof lower);
      ++damaged;
    }
    ASSERT_GT(damaged, 0);
  }

  // Offsets in a meta page. It has a header of 16 bytes, magic, version, address, map size, two
  // trees of 48 bytes, last page, transaction.
  static constexpr std::uint64_t kMainTree = 88, kBranchPages = kMainTree + 8, kTransaction = 144;
  /// Offset of the newer of the two meta pages.
  std::uint64_t newest_meta() const {
    return u64_at(kTransaction) > u64_at(kPage + kTransaction) ? 0 : kPage;
  }
};

}  // namespace kiln::cache::test
