// The pages of an LMDB 0.9 file, which kiln reads itself with pread and verifies before it uses them.
//
// LMDB trusts its pages: a flipped bit sends it to wild addresses, and a file truncated under its map raises
// SIGBUS. An engine must survive both, so reading never goes through LMDB. Every page is bounds-checked
// before it is used, and a page that cannot be read is damage. Only writing goes through LMDB.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cache/store/file/buffer.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {

/// The bytes in the file are not the ones that were written there.
class Damaged : public Error {
 public:
  explicit Damaged(const std::string& what) : Error(Errc::io, what) {}
};

inline constexpr std::uint64_t kNoPage = ~std::uint64_t{0};

struct TreeRoot {
  std::uint64_t page = kNoPage, depth = 0;
  std::uint64_t branch_pages = 0, leaf_pages = 0, overflow_pages = 0, entries = 0;
};

/// The contents of one meta page. When it is taken inside the gate, its pages stay as they are until
/// the gate is left.
struct Snapshot {
  std::uint32_t page_size = 0;
  std::uint64_t last_page = 0, transaction = 0;
  TreeRoot free, main;
  std::uint64_t bytes() const noexcept { return (last_page + 1) * page_size; }
  std::uint64_t live_bytes() const noexcept {
    return (main.branch_pages + main.leaf_pages + main.overflow_pages) * page_size;
  }
};

/// The newest sane meta page. Throws Damaged when there is none, and for a file that is empty or of another
/// format. `both_sane` receives whether both meta pages are sane, without which LMDB would not open the file.
Snapshot newest_snapshot(int fd, bool* both_sane = nullptr);

/// The pages of one snapshot. `fd` must outlive it.
class PageFile {
 public:
  PageFile(int fd, const Snapshot& snapshot) : fd_(fd), snapshot_(snapshot) {}
  const Snapshot& snapshot() const noexcept { return snapshot_; }
  std::uint32_t page_size() const noexcept { return snapshot_.page_size; }
  /// The file's inode number; 0 when the system does not tell it.
  ino_t inode() const noexcept;
  /// Throws Damaged unless the file is as long as the snapshot says.
  void check_length() const;
  /// Reads one page. Throws Damaged when it lies outside the file, cannot be read or
  /// states another page number.
  void read(std::uint64_t page, char* out) const;
  /// Reads one page and does not look at its header, since the later pages of an overflow run have none.
  void read_raw(std::uint64_t page, char* out) const;
  /// Appends `size` bytes to `out`, from `count` pages that begin with `first`. The header of each page is
  /// left out. REQUIRES: the pages hold that many bytes.
  void append_bodies(std::uint64_t first, std::size_t count, std::size_t size, Buffer& out) const;
  /// Throws Damaged unless `page` is the head of an overflow run that holds exactly `size` bytes.
  void check_overflow(std::uint64_t page, std::uint64_t size) const;

 private:
  int fd_;
  Snapshot snapshot_;
};

/// A branch or leaf page in memory. Every accessor stays inside the page whatever its bytes are, or throws
/// Damaged.
class TreePage {
 public:
  static constexpr std::size_t kHeader = 16;
  enum class Kind { branch, leaf };

  /// Throws Damaged.
  static std::shared_ptr<const TreePage> load(const PageFile& file, std::uint64_t page);

  std::uint64_t number() const noexcept { return number_; }
  Kind kind() const noexcept { return kind_; }
  std::size_t count() const noexcept { return count_; }
  std::string_view key(std::size_t index) const;
  std::uint64_t child(std::size_t index) const;  ///< of a branch page

  struct Value {
    std::string_view bytes;            ///< when it lies in the leaf
    std::uint64_t overflow = kNoPage;  ///< else the first page of its overflow run
    std::uint64_t size = 0;
  };
  Value value(std::size_t index) const;  ///< of a leaf page
  /// Bytes that this entry occupies in the page.
  std::size_t node_bytes(std::size_t index) const;
  std::size_t node_offset(std::size_t index) const;
  /// The offset at which the entries begin, as the page states it.
  std::size_t upper() const noexcept { return upper_; }
  std::size_t size() const noexcept { return size_; }

  /// The index of the first entry whose key is not less than `key`; count() when there is none.
  std::size_t lower_bound(std::string_view key) const;
  /// The index of the child of a branch that may hold `key`.
  std::size_t child_for(std::string_view key) const;

 private:
  struct Node;
  Node node(std::size_t index) const;
  std::uint64_t number_ = 0;
  Kind kind_ = Kind::leaf;
  std::size_t count_ = 0, upper_ = 0, size_ = 0;
  std::uint64_t last_page_ = 0;
  std::unique_ptr<char[]> bytes_;
};

}  // namespace kiln::cache
