// Reading a store: one record by its key, its text alone, all records of a specialisation, and listings.
// Damage and a gate that stays shut are misses with a reason.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "cache/store/file/store_file.hpp"
#include "cache/store/results.hpp"
#include "cache/store/upkeep.hpp"
#include "kiln/digest.hpp"

namespace kiln::cache {

/// Thread-safe.
class Lookup {
 public:
  /// `file` and `upkeep` must outlive this object.
  Lookup(StoreFile& file, Upkeep& upkeep) : file_(file), upkeep_(upkeep) {}

  /// These work as the functions of the same names in Store.
  GetResult get(const Key& key, std::string_view key_text, base::Deadline deadline) noexcept;
  GotBytes get_bytes(const Key& key, std::string_view key_text, base::Deadline deadline) noexcept;
  Peeked<Record> peek(const Key& key, base::Deadline deadline) noexcept;
  Peeked<RecordText> peek_text(const Key& key, base::Deadline deadline) noexcept;
  std::vector<Record> find(const Digest& specialisation, base::Deadline deadline) noexcept;
  Listed list(const Key& first, const Key& last, const std::function<void(const Entry&)>& each);
  /// Sets `entries` and `live_bytes` of `out`; the other numbers are left as they are.
  void count(StoreStats& out);

  /// Reads one record. With a key text the read is a use of the entry, which the table of recent uses notes.
  /// Without one it is an inspection. `due`, when given, receives whether the entry's use would have to be
  /// written. Throws Damaged, Error(io).
  GotBytes read_bytes(const Key& key, const std::string_view* key_text, base::Deadline deadline,
                      bool* due = nullptr);

 private:
  Peeked<RecordText> read_text(const Key& key, base::Deadline deadline);
  /// A part of a listing, read in one pass of the gate.
  struct Batch {
    std::vector<Entry> entries;
    std::uint64_t unreadable = 0;
    std::optional<Key> next;  ///< where the listing goes on
  };
  Batch read_batch(const Key& from, const Key& last);

  StoreFile& file_;
  Upkeep& upkeep_;
};

}  // namespace kiln::cache
