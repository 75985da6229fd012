// Putting records into a store, one by one or many in one transaction. A put that finds no room or a damaged
// file first makes room or heals the file.
#pragma once

#include <atomic>
#include <chrono>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/store/lookup.hpp"
#include "cache/store/results.hpp"
#include "cache/store/writable_file.hpp"

namespace kiln::cache {

/// Thread-safe.
class Puts {
 public:
  /// `file` and `lookup` must outlive this object.
  Puts(WritableFile& file, Lookup& lookup) : file_(file), lookup_(lookup) {}

  /// Works as Store::put, which catches what this throws.
  PutResult put(const Record& record, std::chrono::milliseconds wait, Existing existing);
  /// Writes the records that are not there in one transaction, and fills `out`. Returns false, and writes
  /// nothing, when more is needed: room, healing, a longer wait. Throws Error.
  bool put_together(const std::vector<Record>& records, std::chrono::milliseconds wait, Existing existing,
                    std::vector<PutResult>& out);

 private:
  PutResult write(const Record& record, std::string_view encoded, Existing existing, base::Deadline deadline);
  void write_in(WriteTransaction& writing, const PageFile& pages, const Key& key, std::string_view encoded,
                base::Deadline deadline);
  bool is_first_check(const PageFile& pages) const noexcept;

  WritableFile& file_;
  Lookup& lookup_;
  std::atomic<bool> tree_checked_{false};  // a put of this process checked the whole tree
};

}  // namespace kiln::cache
