// The results of a store's operations: a record or why it was missed, the end of a put, and the
// rows of a listing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cache/record/key_range.hpp"
#include "cache/record/record.hpp"
#include "kiln/digest.hpp"

namespace kiln::cache {

/// Why a get returned nothing.
enum class Miss { absent, damaged, other_key_text, gate_timeout, unreadable };
std::string_view to_string(Miss miss) noexcept;
/// How a put ended. All values but `stored` and `present` are skipped puts, with `detail` saying why.
enum class Put { stored, present, read_only, gate_timeout, full, failed };
std::string_view to_string(Put put) noexcept;

struct GetResult {
  std::optional<Record> record;
  Miss miss = Miss::absent;  ///< meaningless with a record
};
/// A record as views of bytes that this object owns, so that an image is not copied once more.
struct GotBytes {
  std::shared_ptr<const void> owner;
  std::optional<RecordView> record;
  Miss miss = Miss::absent;  ///< meaningless with a record
};
/// An optional of what was read; `miss` says why it is empty. An entry that was evicted, cleared or dropped
/// by gc is absent. Only `damaged` says that bytes are wrong.
template <class T>
struct Peeked : std::optional<T> {
  Miss miss = Miss::absent;  ///< meaningless with a value
};
/// How a put treats an intact record of the same key and key text.
enum class Existing {
  kept,     ///< for images: the key determines the bytes, so nothing is written
  replaced  ///< by a record that differs; an equal one is left alone
};
struct PutResult {
  Put put = Put::failed;
  std::string detail;
  std::string notice{};       ///< for people, even after success: the file was healed
  std::uint64_t evicted = 0;  ///< entries that made room for it
  std::string replaced{};     ///< the facts of the record that it replaced; empty: it replaced none
};

/// One entry as a listing shows it; `facts` is what the record's owner wrote.
struct Entry {
  Key key;
  std::string facts;
  std::uint64_t stored_bytes = 0, image_bytes = 0;
  /// The last use in seconds since 1970 (0: not known), and the number of uses. Uses are written lazily: the
  /// time may be up to an hour old, and the number is a lower bound.
  std::uint64_t last_used_s = 0, uses = 0;
};

/// How many entries a listing found.
struct Listed {
  std::uint64_t shown = 0;
  std::uint64_t unreadable = 0;  ///< damaged entries: the head is not intact, or absent
};

/// A record without its image.
struct RecordText {
  std::string facts, key_text;
};

struct StoreStats {
  std::uint64_t entries = 0, live_bytes = 0, file_bytes = 0, cap_bytes = 0;
};

}  // namespace kiln::cache
