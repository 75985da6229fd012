// Ready kernels of one template, found by packed parameters: readers take no lock.
#pragma once

#define XXH_INLINE_ALL  // a hit is short: a call and its switch over lengths would be a third of it
#include <xxhash.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "source/manifest.hpp"

namespace kiln::runtime {

class LoadedKernel;

/// Parameters by position, as numbers; what a hit is found by. Those that were not given are kUnset, and left
/// out at the end.
struct PackedParameters {
  static constexpr std::int64_t kUnset = INT64_MIN;
  std::uint32_t count = 0;
  std::int64_t values[source::kMaxParameters];

  void trim() noexcept {
    while (count > 0 && values[count - 1] == kUnset) --count;
  }
};

/// Open addressing over slots of one cache line each, which hold the parameters themselves: a hit is one line
/// of a big table. A reader follows one atomic pointer to the current slots, and a slot's kernel is published
/// last. Growing publishes a larger copy; the smaller ones stay until the table is cleared, so that no reader
/// ever holds freed memory. Writers are serialised by the caller.
class ReadyTable {
 public:
  ReadyTable() = default;
  ReadyTable(const ReadyTable&) = delete;
  ReadyTable& operator=(const ReadyTable&) = delete;

  /// Wait-free.
  [[gnu::always_inline]] const LoadedKernel* find(const PackedParameters& parameters) const noexcept {
    const Slots* const in = current_.load(std::memory_order_acquire);
    if (!in) return nullptr;
    const std::uint64_t hash = hash_of(parameters);
    for (std::uint64_t i = hash;; ++i) {
      const Slot& slot = in->slots[i & in->mask];
      const LoadedKernel* const kernel = slot.kernel.load(std::memory_order_acquire);
      if (!kernel) return nullptr;
      if (holds(slot, parameters, hash)) return kernel;
    }
  }

  /// The kernel that is in the table afterwards: an earlier one wins. REQUIRES: no other writer.
  const LoadedKernel* insert(const PackedParameters& parameters, const LoadedKernel* kernel);
  /// Puts another kernel in the place of one that is there. REQUIRES: no other writer.
  void replace(const PackedParameters& parameters, const LoadedKernel* kernel) noexcept;
  /// REQUIRES: no reader and no other writer.
  void clear() noexcept;

 private:
  static constexpr std::uint32_t kInline = 6;
  struct alignas(64) Slot {
    std::atomic<const LoadedKernel*> kernel{nullptr};  ///< published last
    std::uint32_t count = 0;
    std::uint32_t check = 0;  ///< the hash's upper half
    union {
      std::int64_t values[kInline];
      const std::int64_t* more;  ///< of more than kInline parameters
    };
    Slot() noexcept : values{} {}
    const std::int64_t* words() const noexcept { return count <= kInline ? values : more; }
  };
  static_assert(sizeof(Slot) == 64);
  struct Slots {
    explicit Slots(std::uint64_t size) : mask(size - 1), slots(new Slot[size]) {}
    std::uint64_t mask;
    std::unique_ptr<Slot[]> slots;
  };
  [[gnu::always_inline]] static std::uint64_t hash_of(const PackedParameters& p) noexcept {
    return XXH3_64bits(p.values, p.count * sizeof(std::int64_t));
  }
  [[gnu::always_inline]] static bool holds(const Slot& slot, const PackedParameters& p,
                                           std::uint64_t hash) noexcept {
    if (slot.check != static_cast<std::uint32_t>(hash >> 32) || slot.count != p.count) return false;
    const std::int64_t* words = slot.words();
    for (std::uint32_t i = 0; i < p.count; ++i) {
      if (words[i] != p.values[i]) return false;
    }
    return true;
  }
  static Slot& free_slot(const Slots& in, std::uint64_t hash) noexcept;
  Slot* slot_of(const PackedParameters& parameters, std::uint64_t hash) const noexcept;
  void grow();

  std::atomic<const Slots*> current_{nullptr};
  std::uint64_t used_ = 0;
  std::vector<std::unique_ptr<Slots>> slots_;
  std::vector<std::unique_ptr<std::int64_t[]>> more_;
};

}  // namespace kiln::runtime
