// Damages an LMDB file with knowledge of its structure. It sets fields of metas, page headers, nodes and free
// lists to values that could be right. It exchanges pages, and makes free lists name pages that are in use.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace kiln::cache::test {

/// A file of 4,096-byte pages. It must be valid at first.
class MutableFile {
 public:
  explicit MutableFile(std::string bytes);
  /// Makes one change, drawn from `random`. Returns a description of it.
  std::string mutate(std::mt19937& random);
  const std::string& bytes() const noexcept { return bytes_; }

  // Offsets in the file, for tests that damage one field.
  static constexpr std::size_t kPage = 4096;
  std::size_t newest_meta() const;
  std::size_t older_meta() const { return kPage - newest_meta(); }
  template <typename T>
  T at(std::size_t offset) const;
  template <typename T>
  void set(std::size_t offset, T value);
  std::uint64_t last_page() const { return at<std::uint64_t>(newest_meta() + kLastPage); }
  /// One entry of the free list: the offsets of its key and its count.
  struct FreeList {
    std::size_t key, count;
    std::uint64_t overflow;  ///< 0: the list lies in its leaf
  };
  std::vector<FreeList> free_lists() const;
  /// Pages of the tree whose root the newest meta names at offset `root`.
  std::vector<std::uint64_t> tree_pages(std::size_t root) const;

  static constexpr std::size_t kFreeDb = 16 + 24, kMainDb = kFreeDb + 48, kLastPage = kMainDb + 48,
                               kTransaction = kLastPage + 8;
  static constexpr std::size_t kDbBranches = 8, kDbLeaves = 16, kDbOverflows = 24, kDbEntries = 32,
                               kDbRoot = 40;

 private:
  // LMDB's sizes of headers, and its flags of pages and nodes.
  static constexpr std::size_t kHeader = 16, kNode = 8, kFlags = 10;
  static constexpr std::uint16_t kBranch = 1, kLeaf = 2, kBigData = 1;
  static constexpr std::uint64_t kNoPageNumber = ~std::uint64_t{0};

  bool fits(std::size_t offset, std::size_t size) const noexcept {
    return offset <= bytes_.size() && bytes_.size() - offset >= size;
  }
  using Random = std::mt19937;
  std::size_t count_of(std::uint64_t page) const;
  std::size_t node(std::uint64_t page, std::size_t index) const;
  std::uint64_t any_page(Random& random) const;  ///< a page number that is in use, or close to one
  std::uint64_t tree_page(Random& random) const;
  std::uint64_t value_for(Random& random, std::uint64_t now) const;
  void set_sized(std::size_t offset, std::size_t size, std::uint64_t value);
  std::uint64_t at_sized(std::size_t offset, std::size_t size) const;

  std::string mutate_meta(Random& random);
  std::string mutate_pair_of_metas(Random& random);
  std::string mutate_header(Random& random);
  std::string mutate_node(Random& random);
  std::string mutate_child(Random& random);
  std::string mutate_free_list(Random& random);
  std::string move_page(Random& random);
  std::string flip(Random& random);

  std::string bytes_;
};

}  // namespace kiln::cache::test
