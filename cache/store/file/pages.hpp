// The pages of an LMDB 0.9 file, which kiln reads itself with pread and verifies before it uses them.
//
// LMDB trusts its pages: a flipped bit sends it to wild addresses, and a file truncated under its map is
// SIGBUS. An engine must survive both, so reading never goes through LMDB: every page is bounds-checked
// before it is looked at, and what cannot be read is damage. LMDB writes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cache/store/file/buffer.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {

/// What lies in the file is not what was written there.
class Damaged : public Error {
 public:
  explicit Damaged(const std::string& what) : Error(Errc::io, what) {}
};

inline constexpr std::uint64_t kNoPage = ~std::uint64_t{0};

struct TreeRoot {
  std::uint64_t page = kNoPage, depth = 0;
  std::uint64_t branch_pages = 0, leaf_pages = 0, overflow_pages = 0, entries = 0;
};

/// What one meta page says. Taken inside the gate its pages stay as they are until the gate is left.
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
/// format. `both_sane` receives whether LMDB, which wants two, would open it.
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
  /// One page. Throws Damaged when it lies outside the file, cannot be read or says it is another one.
  void read(std::uint64_t page, char* out) const;
  /// The same without a look at what it says: the later pages of an overflow run have no header.
  void read_raw(std::uint64_t page, char* out) const;
  /// `size` bytes of `count` pages from `first` on, each page's header left out, appended to `out`.
  /// REQUIRES: count pages hold them.
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
  std::uint64_t child(std::size_t index) const;  ///< of a branch

  struct Value {
    std::string_view bytes;            ///< when it lies in the leaf
    std::uint64_t overflow = kNoPage;  ///< else the first page of it
    std::uint64_t size = 0;
  };
  Value value(std::size_t index) const;  ///< of a leaf
  /// Bytes that this entry occupies in the page.
  std::size_t node_bytes(std::size_t index) const;
  std::size_t node_offset(std::size_t index) const;
  /// Where LMDB believes the entries to begin.
  std::size_t upper() const noexcept { return upper_; }
  std::size_t size() const noexcept { return size_; }

  /// The first entry whose key is not less; count() when there is none.
  std::size_t lower_bound(std::string_view key) const;
  /// The child of a branch that may hold the key.
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
