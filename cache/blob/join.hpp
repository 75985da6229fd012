// The content of a blob, put together from the pieces of its records, and whether all of these are there.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "cache/blob/blob.hpp"

namespace kiln::cache {

/// Used by one thread.
class JoinedContent {
 public:
  /// `facts`, of the record that names the blob, must outlive this object.
  explicit JoinedContent(const BlobFacts& facts) : facts_(facts) {}

  /// Appends the next piece in order; nothing stands for a piece that is missing.
  void add(const std::optional<Bytes>& piece);
  /// False when a piece was missing, or there are more bytes than the facts tell.
  bool fits() const noexcept { return fits_; }
  /// Nothing when a piece was missing, or the content is not the one that the facts tell. Called once.
  std::optional<Bytes> whole();

 private:
  const BlobFacts& facts_;
  std::string content_;
  bool fits_ = true;
};

/// Counts the parts of blobs in a listing of one store. Used by one thread.
class PartCount {
 public:
  /// Counts the record with these facts, where it is a part.
  void add(const BlobFacts& facts);
  /// True when all parts that this head names were counted; always for a blob without parts.
  bool has_all(const BlobFacts& head) const;

 private:
  std::map<Key, std::uint32_t> parts_;  // by the key of the first part, which is of one content
};

}  // namespace kiln::cache
