// The content of a blob, put together from the pieces of its records.
#pragma once

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

}  // namespace kiln::cache
