// What processes of one user and one boot remember about toolkit headers: stamp, digest and scan of each, in
// one file.
//
// Memo v5, little-endian: 8 "kilnmem5", u64 XXH3-64 of what follows; boot id, then the entries: path, and a
// blob of stamp, digest and scan. The file is ours, 0600 and regular, or it is ignored; so is one of another
// boot, another version of the scanner, or damaged.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>

#include "closure/scan_cache.hpp"

namespace kiln::source {

/// Not thread-safe: ScanCache guards it.
class ScanMemo {
 public:
  /// Read on first use. Empty: remembers nothing.
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
  std::string bytes_;  ///< of the file
  std::unordered_map<std::string_view, std::string_view>
      stored_;  ///< path -> blob, in bytes_: decoded when asked for
  std::unordered_map<std::string, ScanCache::Scanned> added_;
};

}  // namespace kiln::source
