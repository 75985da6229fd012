// The list of a captured directory's files: the content of one blob. The files' bytes are blobs of their own.
//
// Version 1, little-endian (base/wire.hpp):
//
//     8   magic "kilntree", u32 1
//     root, u32 its mode          where it was captured; for people
//     u32 entries, in the order of their paths, so that a directory comes before what is in it:
//         u8 kind, path, u32 mode
//         a file:     u64 size, i64 mtime in ns since 1970, 16 XXH3-128 of its bytes
//         a symlink:  target
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/digest.hpp"

namespace kiln::cli {

struct TreeEntry {
  /// A fresh file was written less than two seconds before it was read. A later write may have left its size
  /// and time as they are, so these do not prove that it is the same.
  enum class Kind : std::uint8_t { directory, file, fresh_file, symlink };
  Kind kind = Kind::file;
  std::string path;  ///< relative; names that are neither "." nor ".."
  std::uint32_t mode = 0;
  std::uint64_t size = 0;
  std::int64_t modified_ns = 0;
  Digest digest;
  std::string target;  ///< of a symlink

  bool is_file() const noexcept { return kind == Kind::file || kind == Kind::fresh_file; }
  friend bool operator==(const TreeEntry&, const TreeEntry&) = default;
};

struct Tree {
  std::string root;
  std::uint32_t root_mode = 0700;
  std::vector<TreeEntry> entries;

  std::uint64_t files() const noexcept;
  std::uint64_t bytes() const noexcept;  ///< of all files
};

/// A blob of this space has the bytes of one file. Its key is their digest, so one compatibility serves
/// all files.
inline constexpr const char *kFileSpace = "files", *kFileCompatibility = "kiln-files 1";

inline constexpr std::size_t kLongestPath = 4096;  ///< bytes of a path or target that a list may have

/// True for a path that names something inside of a directory: not empty, not absolute, no empty name, no "."
/// or "..", no NUL.
bool is_inside(std::string_view path) noexcept;

/// True for the target of a symlink at `path` that stays inside of the tree: it is relative, and ".." is at its
/// begin only and at most as often as the symlink has directories above it. Then no chain of such symlinks
/// leaves the tree either.
bool stays_inside(std::string_view path, std::string_view target) noexcept;

std::string encode(const Tree& tree);
/// Throws base::Malformed also for a path that leaves the tree, one that comes twice, one whose directory
/// is not in the list, and a symlink that leaves the tree.
Tree decode_tree(std::string_view bytes);

}  // namespace kiln::cli
