// The reasons for which a value that a server gave is not used. Each is a miss, and is counted by its reason.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace kiln::fleet {

/// The reasons, in the order in which they are checked.
enum class Rejection : std::uint8_t {
  too_long,        ///< longer than any value of its kind
  malformed,       ///< not of the grammar: magic, lengths, text, bytes after the end
  other_schema,    ///< of another version
  other_key,       ///< it is another key's value, such as an older toolchain's under the new one's name
  other_key_text,  ///< the digests agree and the texts do not
  unsigned_,       ///< signed by nobody
  unknown_key,     ///< signed by a key that this node was not told to trust
  bad_signature,   ///< not signed by the key that it names, or changed since
  bad_digest,      ///< the payload is not the one that was signed
  bad_payload,     ///< signed, and yet no frame of the announced size
};
inline constexpr std::size_t kRejections = static_cast<std::size_t>(Rejection::bad_payload) + 1;

/// "bad_signature".
constexpr const char* name_of(Rejection reason) noexcept {
  constexpr const char* kNames[kRejections] = {
      "too_long", "malformed",   "other_schema",  "other_key",  "other_key_text",
      "unsigned", "unknown_key", "bad_signature", "bad_digest", "bad_payload"};
  return kNames[static_cast<std::size_t>(reason)];
}

/// Thread-safe.
class RejectionCounts {
 public:
  void add(Rejection reason, std::uint64_t times = 1) noexcept {
    counts_[static_cast<std::size_t>(reason)].fetch_add(times, std::memory_order_relaxed);
  }
  std::uint64_t of(Rejection reason) const noexcept {
    return counts_[static_cast<std::size_t>(reason)].load(std::memory_order_relaxed);
  }
  std::uint64_t all() const noexcept {
    std::uint64_t out = 0;
    for (const auto& count : counts_) out += count.load(std::memory_order_relaxed);
    return out;
  }

 private:
  std::array<std::atomic<std::uint64_t>, kRejections> counts_{};
};

}  // namespace kiln::fleet
