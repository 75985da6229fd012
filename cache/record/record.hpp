// The record: one cached image with its key, its key text and its facts, and the grammar of its bytes in a store.
//
// Record v1, little-endian:
//   8   magic "kilnrec1"
//   u32 facts size, u32 key text size, u64 image size
//   u64 XXH3-64 of the 24 bytes above and the facts     ("head": enough to list entries)
//   u64 XXH3-64 of key text and image                    ("body")
//   facts, key text, image
// The key is not among the bytes: it is the name that they lie under.
// Damage, a shorter or longer value and another magic all mean: no record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kiln/digest.hpp"

namespace kiln::cache {

/// What a store, a bundle or a tier keeps for a key. Bytes in, bytes out: this room knows neither CUDA nor what
/// facts mean.
struct Record {
  Key key;
  std::string facts, key_text, image;

  /// In bytes, without the key.
  std::size_t size() const noexcept { return facts.size() + key_text.size() + image.size(); }
};

std::string encode(const Record& record);

/// Where a record's head (fixed part and facts), its key text and all of it end, as its first bytes say. Not
/// verified.
struct RecordExtent {
  std::uint64_t head = 0, key_text = 0, total = 0;
};
/// Nothing when that is no record.
std::optional<RecordExtent> extent_of(std::string_view prefix);

/// Whether these bytes are a whole record, by both checksums.
bool is_intact(std::string_view bytes);

/// The record that lies under `key`; nothing unless it is intact.
std::optional<Record> decode(const Key& key, std::string_view bytes);

struct RecordHead {
  std::string facts;
  std::size_t key_text_size = 0, image_size = 0;
};
/// From the first bytes of an encoded record, if they hold the facts; the head checksum is verified.
/// `needed` receives how many bytes the head has (when at least the fixed part is there).
std::optional<RecordHead> decode_head(std::string_view prefix, std::size_t* needed = nullptr);

}  // namespace kiln::cache
