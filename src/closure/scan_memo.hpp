// Toolkit headers that processes of one user remember until the next boot: stamp, digest and scan
// of each, in one file.
//
// Memo v5, little-endian: 8 "kilnmem5", u64 XXH3-64 of the rest; boot id, then the entries. An entry is a
// path, and a blob of stamp, digest and scan. The file is ignored unless it is regular, ours and 0600. It is
// also ignored when it is damaged, or comes from another boot or another version of the scanner.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>

#include "closure/scan_cache.hpp"

namespace kiln::source {

/// Not thread-safe: ScanCache guards it.
class ScanMemo {
 public:
  /// The file is read at the first use. With an empty name, nothing is remembered.
  explicit ScanMemo(std::string file) : file_(std::move(file)) {}

  std::optional<ScanCache::Scanned> find(const std::string& path);
  /// REQUIRES: a settled entry of a toolkit header.
  void add(const std::string& path, const ScanCache::Scanned& scanned);
  /// Writes the file when something was added. A fault is ignored.
  void save() noexcept;

 private:
  void load();
  std::string file_;
  bool loaded_ = false, changed_ = false;
  std::string bytes_;  ///< content of the file
  /// Path -> blob, as views of bytes_. A blob is decoded when it is needed.
  std::unordered_map<std::string_view, std::string_view> stored_;
  std::unordered_map<std::string, ScanCache::Scanned> added_;
};

}  // namespace kiln::source
