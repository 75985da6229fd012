// Traces of scans (closure/trace.hpp) that processes of one user leave for each other until the next boot.
// They are in one file. A process reads the index, and only the trace that it needs.
//
// Memo v1, little-endian: 8 "kilncls1", u64 XXH3-64 of the rest of the first 4,096 bytes; boot id, then the
// entries, newest first. Zeros follow up to 4,096, then the traces. An entry is: key, u64 offset, u64 size,
// u64 XXH3-64 of the trace. The file is ignored unless it is regular, ours and 0600. It is also ignored when
// it is damaged or comes from another boot. It has at most 64 traces and 16 MiB: the oldest are dropped.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kiln/digest.hpp"

namespace kiln::source {

/// Not thread-safe: ScanCache guards it.
class ClosureMemo {
 public:
  /// With an empty name, nothing is remembered.
  explicit ClosureMemo(std::string file) : file_(std::move(file)) {}

  /// The trace of this key; null when there is none. The file is read at the first call.
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
