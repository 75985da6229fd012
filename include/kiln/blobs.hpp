// Blobs: bytes of other JIT compilers in kiln's stores, layers, bundles and tier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "kiln/detail.hpp"
#include "kiln/kiln.h"

namespace kiln {
inline namespace v1 {

/// The right to make one blob, for which other callers wait. It ends with the object or with a put.
class Lease {
 public:
  Lease() = default;
  explicit Lease(kiln_lease* held) noexcept : held_(held) {}
  explicit operator bool() const noexcept { return held_ != nullptr; }
  kiln_lease* release() noexcept { return held_.release(); }

 private:
  std::unique_ptr<kiln_lease, detail::Release<kiln_lease, kiln_lease_end>> held_;
};

/// The blobs of one space and one compatibility (kiln.h, "Blobs"). Thread-safe.
///
/// It is a view that a Service owns. Copies are cheap.
class Blobs {
 public:
  enum class Put {
    stored = KILN_BLOB_STORED,
    present = KILN_BLOB_PRESENT,
    skipped = KILN_BLOB_SKIPPED,
    queued = KILN_BLOB_QUEUED
  };
  struct Leased {
    std::optional<std::string> found;
    Lease lease;  ///< empty, without `found`: make the blob for yourself
  };

  explicit Blobs(kiln_blobs* handle) noexcept : handle_(handle) {}

  /// The blob, or nothing. Throws Error(not_ready) where the space refuses sealed misses.
  std::optional<std::string> get(std::string_view key) const {
    Text out;
    detail::check(kiln_blob_get(handle_, key.data(), key.size(), &out.text));
    return out.bytes();
  }
  /// Stores a blob, and ends the lease. It is on disk when this returns, unless it was queued. Throws Error(invalid_argument).
  Put put(std::string_view key, std::string_view content, Lease lease = {}) const {
    std::int32_t state = 0;
    detail::check(kiln_blob_put(handle_, key.data(), key.size(), content.data(), content.size(),
                                lease.release(), &state));
    return static_cast<Put>(state);
  }
  /// The blob, or the lease to make it. Waits up to `wait_seconds` for another maker (negative: no limit).
  Leased lease(std::string_view key, double wait_seconds) const {
    Text out;
    kiln_lease* held = nullptr;
    detail::check(kiln_blob_lease(handle_, key.data(), key.size(), wait_seconds, &out.text, &held));
    return {out.bytes(), Lease(held)};
  }
  /// Waits until queued blobs are stored or skipped. False when the wait was over first.
  bool flush(double wait_seconds) const {
    std::int32_t flushed = 0;
    detail::check(kiln_blobs_flush(handle_, wait_seconds, &flushed));
    return flushed != 0;
  }
  /// A JSON array of the blobs of the space (kiln_blobs_list in kiln.h).
  std::string list() const {
    Text out;
    detail::check(kiln_blobs_list(handle_, &out.text));
    return *out.bytes();
  }
  /// Deletes a blob from the writable store. False when it was not there.
  bool erase(std::string_view key) const {
    std::int32_t deleted = 0;
    detail::check(kiln_blob_delete(handle_, key.data(), key.size(), &deleted));
    return deleted != 0;
  }
  /// The fingerprint has this text of a blob that this process has used, in place of its bytes, until its next use.
  void identify(std::string_view key, std::string_view identity) const {
    detail::check(kiln_blob_identify(handle_, key.data(), key.size(), identity.data(), identity.size()));
  }
  kiln_blobs* get() const noexcept { return handle_; }

 private:
  struct Text {
    Text() { text.struct_size = sizeof text; }
    Text(const Text&) = delete;
    ~Text() { kiln_text_release(&text); }
    std::optional<std::string> bytes() const {
      if (!text.data) return std::nullopt;
      return std::string(text.data, text.size);
    }
    kiln_text text{};
  };
  kiln_blobs* handle_;
};

}  // namespace v1
}  // namespace kiln
