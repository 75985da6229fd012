// A bundle holds entries of a store in one portable file, sorted by key and reproducible to the byte.
//
// Bundle v1, little-endian. The file:
//
//     8   magic "kilnbndl"
//     u32 version: 1
//     u32 0
//     one zstd frame (no dictionary, a window of at most 128 MiB), and nothing after it
//
// The content of the frame:
//
//     entries in strictly ascending order of their keys, each
//       u8  1
//       32  key: specialisation digest, toolchain digest
//       u32 facts size, u32 key text size, u64 image size
//       facts, key text, image
//       32  BLAKE2b-256 of the content before these 32 bytes, earlier digests too
//     the end
//       u8  0
//       u64 number of entries
//       32  BLAKE2b-256 of the content before these 32 bytes
//
// So an entry is known to be whole before it is used, however the file ends.
// No path, no time, and no name of a host or user is in a bundle. Names inside the three byte strings are the
// business of their owner, and never become paths.
//
// History: v1, the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "cache/record/record.hpp"
#include "kiln/digest.hpp"
#include "kiln/error.hpp"

namespace kiln::bundle {

inline constexpr std::string_view kMagic = "kilnbndl";
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kHeaderBytes = 16;
inline constexpr std::uint8_t kEntryMark = 1, kEndMark = 0;
inline constexpr std::size_t kContentDigestBytes = 32;

/// Sizes in bytes beyond which a reader refuses.
struct Limits {
  std::uint64_t facts = std::uint64_t{1} << 20;
  std::uint64_t key_text = std::uint64_t{16} << 20;
  std::uint64_t image = std::uint64_t{256} << 20;   ///< the compiler's own limit
  std::uint64_t content = std::uint64_t{64} << 30;  ///< of the whole, decompressed
};

/// The content's BLAKE2b-256.
using ContentDigest = Bytes<kContentDigestBytes>;

struct Summary {
  std::uint64_t entries = 0, content_bytes = 0;
  ContentDigest digest;
};

/// The file is no bundle, or damaged, or made to do harm. Nothing that follows may be used.
struct Refused : Error {
  explicit Refused(const std::string& message) : Error(Errc::io, message) {}
};

}  // namespace kiln::bundle
