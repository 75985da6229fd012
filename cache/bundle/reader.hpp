// The bundle reader gives one entry after the other. It uses nothing before it is verified, and needs
// memory for one entry.
#pragma once

#include <cstdint>
#include <optional>

#include "cache/bundle/format.hpp"
#include "cache/compression/zstd.hpp"
#include "cache/trust/blake2b.hpp"

namespace kiln::bundle {

/// The content of a bundle, decompressed.
class ContentReader {
 public:
  ContentReader(base::Read in, const Limits& limits) : in_(std::move(in)), limits_(limits) {}
  /// Returns the next entry, whose digest was verified. Returns nothing at the end, after verifying the
  /// number of entries, the digest, and that nothing follows. Throws Refused. The entries before a refusal
  /// are what was written.
  std::optional<cache::Record> next();
  /// Counts what was read so far; the digest is there after the end.
  const Summary& summary() const noexcept { return summary_; }

 private:
  void take(char* out, std::size_t size);
  std::string take_string(std::uint64_t size, std::uint64_t limit, const char* what);
  template <class T>
  T number();
  /// Returns the digest of what was read so far. Throws Refused when the content states another one.
  ContentDigest take_digest(const std::string& of);
  void read_end();

  const base::Read in_;
  const Limits limits_;
  trust::Blake2b hash_{kContentDigestBytes};
  std::optional<Key> last_;
  bool ended_ = false;
  Summary summary_;
};

/// Reads a bundle's file: the header, then the content of the frame.
class Reader {
 public:
  /// Reads the header. Throws Refused; Error(io) for a version that this kiln does not know.
  Reader(base::Read in, const Limits& limits);
  std::optional<cache::Record> next() { return content_.next(); }
  const Summary& summary() const noexcept { return content_.summary(); }

 private:
  /// Works as base::Read. A bad frame is a refusal.
  std::size_t decompressed(char* out, std::size_t size);
  compression::Decompressor decompressor_;
  ContentReader content_;
};

}  // namespace kiln::bundle
