// A record is one cached image with its key, its key text and its facts. This file defines the grammar of its
// bytes in a store.
//
// Record v1, little-endian:
//
//     8   magic "kilnrec1"
//     u32 facts size, u32 key text size, u64 image size
//     u64 XXH3-64 of the 24 bytes above and the facts     ("head": enough to list entries)
//     u64 XXH3-64 of key text and image                    ("body")
//     facts, key text, image
//
// The key is not among these bytes; a store keeps them under their key.
// Damage, a shorter or longer value and another magic all mean that there is no record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kiln/digest.hpp"

namespace kiln::cache {

/// One record, as a store, a bundle or a tier keeps it. It is only bytes here: this folder knows neither CUDA
/// nor the meaning of the facts.
struct Record {
  Key key;
  std::string facts, key_text, image;

  /// Bytes of the facts, the key text and the image; the key is not counted.
  std::size_t size() const noexcept { return facts.size() + key_text.size() + image.size(); }
};

/// Throws Error(invalid_argument) for facts or a key text of 4 GiB or more.
std::string encode(const Record& record);

/// Offsets at which a record's head (fixed part and facts), its key text and the whole record end. They
/// follow from the sizes that the record states, and are not verified.
struct RecordExtent {
  std::uint64_t head = 0, key_text = 0, total = 0;
};
/// Returns nothing when `prefix` does not begin a record.
std::optional<RecordExtent> extent_of(std::string_view prefix);

/// Returns whether `bytes` is one whole record, by both checksums.
bool is_intact(std::string_view bytes);

/// The parts of a record, as views of its bytes.
struct RecordView {
  std::string_view facts, key_text, image;
};
/// The parts of the record that `bytes` are. Returns nothing unless they are intact.
std::optional<RecordView> view_of(std::string_view bytes);
/// Decodes the bytes that lie under `key`. Returns nothing unless they are intact.
std::optional<Record> decode(const Key& key, std::string_view bytes);

struct RecordHead {
  std::string facts;
  std::size_t key_text_size = 0, image_size = 0;
};
/// Decodes the head from the first bytes of a record, and verifies its checksum. Returns nothing when
/// `prefix` does not hold all facts. `needed` receives the size of the head in bytes, or 0 when the fixed
/// part is not there.
std::optional<RecordHead> decode_head(std::string_view prefix, std::size_t* needed = nullptr);

}  // namespace kiln::cache
