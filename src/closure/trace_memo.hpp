// Traces of scans (closure/trace.hpp) that processes of one user and one boot leave each other, in one file
// of which a process reads the index and the one trace that it needs.
//
// Memo v1, little-endian: 8 "kilncls1", u64 XXH3-64 of the rest of the first 4,096 bytes; boot id, then the
// entries, newest first: key, u64 offset, u64 size, u64 XXH3-64 of the trace; zeros up to 4,096; the traces.
// The file is ours, 0600 and regular, or it is ignored; so is one of another boot or damaged. At most 64
// traces and 16 MiB: the oldest go.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kiln/digest.hpp"

namespace kiln::source {

/// Not thread-safe: ScanCache guards it.
class ClosureMemo {
 public:
  /// Empty: remembers nothing.
  explicit ClosureMemo(std::string file) : file_(std::move(file)) {}

  /// Read from the file at the first time; null when there is none.
  std::shared_ptr<const std::string> find(const Digest& key);
  void add(const Digest& key, std::string trace);
  /// Writes the file when something was added. A fault is ignored.
  void save() noexcept;

 private:
  struct Kept {
    Digest key;
    std::shared_ptr<const std::string> trace;
  };
  std::string file_;
  std::vector<Kept> known_;  ///< read or added by this process
  bool changed_ = false;
};

}  // namespace kiln::source
