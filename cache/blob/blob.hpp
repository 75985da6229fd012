// A blob is opaque bytes under (space, compatibility, key). A store keeps it as records, beside the images of
// kernels: other JIT compilers cache in kiln's store this way.
//
// Key text, schema 1, lines as in compile/key/key.hpp:
//
//     kiln-key 6:blob/1
//     space 6:triton
//     compatibility 12:triton 3.6.0           what a blob depends on and its key does not say
//     key 4:abcd                              the key that the caller gave; any bytes
//     part 1:0 8:67108864 32:<digest of the content>     only in a part of a large blob: its number from 0, and
//                                             the bytes of every part but the last
//
// The first half of the record's key is eight bytes of the space's hash, then eight bytes of the key's. So the
// blobs of a space are one range of a store, and a tier of many servers still spreads them. The second half is
// the digest of the key text.
//
// Facts (base/wire.hpp), version 1; they have no time, so the same blob is the same record everywhere:
//
//     u32 kBlobMark, u32 1                    no facts of an image begin so
//     space, compatibility, key
//     u8 encoding of the image: 0 plain, 1 one zstd frame
//     u64 bytes of the content, and of this record's piece of it
//     16  XXH3-128 of the content
//     u32 parts                               0: the image has the content; n: n parts have it
//     u32 part                                this record's number from 1; 0: no part
//     u64 bytes of every part but the last    0: the image has the content
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cache/record/key_range.hpp"
#include "cache/record/record.hpp"
#include "kiln/digest.hpp"

namespace kiln::cache {

/// The name of a blob. Two blobs are the same one only if all three texts are equal.
struct BlobName {
  std::string space;          ///< [a-z0-9_.-]{1,64}: "triton"
  std::string compatibility;  ///< versions, arch and all else that a blob depends on; at most 64 KiB
  std::string key;            ///< at most 64 KiB

  /// "blob KEY of space SPACE". A key may be any bytes.
  std::string label() const { return "blob " + key + " of space " + space; }
};

/// The facts of a blob's record, or of the record of one part.
struct BlobFacts : BlobName {
  bool compressed = false;
  std::uint64_t size = 0;   ///< bytes of the content
  std::uint64_t piece = 0;  ///< bytes of this record's piece of the content
  Digest content;           ///< of the whole content
  std::uint32_t parts = 0, part = 0;
  std::uint64_t part_bytes = 0;  ///< of every part but the last
};

inline constexpr std::uint32_t kBlobMark = 0x626f6c62;                  // "blob"
inline constexpr std::uint64_t kBlobPart = std::uint64_t{64} << 20;     ///< a larger blob has parts
inline constexpr std::uint64_t kLargestBlob = std::uint64_t{16} << 30;  ///< bytes
inline constexpr std::size_t kLongestBlobText = std::size_t{64} << 10;  ///< of a key or compatibility

/// Throws Error(invalid_argument) that names the text, its size and what is allowed.
void check_blob_name(const BlobName& name);

/// A key with its text.
struct BlobKey {
  Key key;
  std::string text;
};
BlobKey blob_key(const BlobName& name);
/// The key of a part of the blob that has these facts. `part` counts from 0.
BlobKey blob_part_key(const BlobFacts& facts, std::uint32_t part);
/// The key of the record, whole or part, that has these facts.
BlobKey key_of(const BlobFacts& facts);

/// The range of keys that blobs of `space` can have, and that of the blobs with one key and their parts.
KeyRange keys_of_space(std::string_view space);
KeyRange keys_of_blob(const Key& key);

/// Calls `each` with the records of a blob: its parts of `part_bytes` each, where it is longer than that, and
/// then the record that names them.
/// Compresses what becomes at least a tenth smaller. Throws Error(invalid_argument) for a blob that is too large.
void each_record(const BlobName& name, std::string_view content, std::uint64_t part_bytes,
                 const std::function<void(Record&&)>& each);

/// Bytes and their owner.
struct Bytes {
  std::shared_ptr<const void> owner;
  std::string_view view;

  friend bool operator==(const Bytes& bytes, std::string_view other) noexcept { return bytes.view == other; }
};
/// Bytes that own a string.
Bytes bytes_of(std::string&& content);

/// The piece of the content that one record has. It shares the owner of `image`, or has one of its own.
/// Nothing when the image does not agree with the facts.
std::optional<Bytes> piece_of(const BlobFacts& facts, const Bytes& image);

/// True for facts of a blob or a part, of any version.
bool is_blob(std::string_view facts) noexcept;
/// True for the key text of a blob: of any version, or of this version only.
bool is_blob_text(std::string_view key_text) noexcept;
bool is_blob_of_this_version(std::string_view key_text) noexcept;
/// Throws base::Malformed, also for facts of an image.
BlobFacts decode_blob(std::string_view facts);

}  // namespace kiln::cache
