// What a store's operations return: what was read and why not, how a put ended, and what a listing shows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cache/record/record.hpp"
#include "kiln/digest.hpp"

namespace kiln::cache {

/// Why a get returned nothing.
enum class Miss { absent, damaged, other_key_text, gate_timeout, unreadable };
std::string_view to_string(Miss miss) noexcept;
/// How a put ended; everything but stored and present is a skipped put, with `detail` saying why.
enum class Put { stored, present, read_only, gate_timeout, full, failed };
std::string_view to_string(Put put) noexcept;

struct GetResult {
  std::optional<Record> record;
  Miss miss = Miss::absent;  ///< meaningless with a record
};
/// What was read, used as the optional that it is; or nothing, and why. An entry that was evicted, cleared or
/// dropped by gc is absent; only `damaged` says that bytes are wrong.
template <class T>
struct Peeked : std::optional<T> {
  Miss miss = Miss::absent;  ///< meaningless with a value
};
/// What a put does with an intact record of the same key and key text.
enum class Existing {
  kept,     ///< an image is what its key says: there is nothing to write
  replaced  ///< by another record; one that is the same is left alone
};
struct PutResult {
  Put put = Put::failed;
  std::string detail;
  std::string notice{};       ///< what people should know even when it was stored: the file was healed
  std::uint64_t evicted = 0;  ///< entries that made room for it
};

/// One entry as a listing shows it; `facts` is what the record's owner wrote.
struct Entry {
  Key key;
  std::string facts;
  std::uint64_t stored_bytes = 0, image_bytes = 0;
  /// Seconds since 1970; 0: not known. Uses are written lazily: not more than an hour late, and at least.
  std::uint64_t last_used_s = 0, uses = 0;
};

/// What a listing went over.
struct Listed {
  std::uint64_t shown = 0;
  std::uint64_t unreadable = 0;  ///< damaged: entries whose head is not intact, or not there
};

/// A record without its image.
struct RecordText {
  std::string facts, key_text;
};

struct StoreStats {
  std::uint64_t entries = 0, live_bytes = 0, file_bytes = 0, cap_bytes = 0;
};

}  // namespace kiln::cache
