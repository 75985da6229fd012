// Ready kernels of one template, found by packed parameters: readers take no lock.
#pragma once

#define XXH_INLINE_ALL  // a hit is short: a call and its switch over lengths would be a third of it
#include <xxhash.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "manifest/manifest.hpp"

namespace kiln::runtime {

class LoadedKernel;

/// The key by which a hit is found: parameters by position, as numbers. Parameters that were not given are
/// unset, and are left out at the end. Each takes one word of 32 bits, so that a table's bucket stays small.
/// When one value does not fit, each takes two words.
class PackedParameters {
 public:
  static constexpr std::int64_t kUnset = INT64_MIN;

  /// REQUIRES: count <= kMaxParameters.
  void set(const std::int64_t* values, std::uint32_t count) noexcept;
  /// Sets values of which none is unset and each fits one word. `each(i, fits)` returns value i. Returns
  /// false when a value does not fit or `each` clears `fits`; the object must then be set again.
  template <class Each>
  [[gnu::always_inline]] bool set_plain(std::uint32_t count, Each&& each) noexcept {
    for (std::uint32_t i = 0; i < count; ++i) {
      bool fits = true;
      const std::int64_t value = each(i, fits);
      words_[i] = static_cast<std::int32_t>(value);
      if (words_[i] != value || !fits) [[unlikely]]
        return false;
    }
    shape_ = count;
    return true;
  }
  std::uint32_t shape() const noexcept { return shape_; }  ///< words, and whether they are wide
  const std::int32_t* words() const noexcept { return words_; }
  std::uint32_t size() const noexcept { return size_of(shape_); }
  static constexpr std::uint32_t size_of(std::uint32_t shape) noexcept { return shape & 0xffff; }

 private:
  static constexpr std::uint32_t kWide = 1u << 31;   ///< two words each
  static constexpr std::uint32_t kHoles = 1u << 30;  ///< a word of INT32_MIN is an unset parameter

  std::uint32_t shape_ = 0;
  std::int32_t words_[2 * source::kMaxParameters];
};

/// Open addressing over buckets that hold the parameters themselves. Two buckets share a cache line, so a hit
/// touches one line of a big table. A reader follows one atomic pointer to the current buckets, and a
/// bucket's kernel is published last. Growing publishes a larger copy. The smaller ones stay until the table
/// is cleared, so that no reader ever holds freed memory. The caller serialises writers.
class ReadyTable {
 public:
  ReadyTable() = default;
  ReadyTable(const ReadyTable&) = delete;
  ReadyTable& operator=(const ReadyTable&) = delete;

  /// Wait-free, as find_few.
  const LoadedKernel* find(const PackedParameters& p) const noexcept;
  /// As find, for at most kFew words; null for more. It is inline, and neither hash nor comparison looks
  /// at a length.
  static constexpr std::uint32_t kFew = 4;
  [[gnu::always_inline]] const LoadedKernel* find_few(const PackedParameters& p) const noexcept {
    const Buckets* const in = current_.load(std::memory_order_acquire);
    if (!in) return nullptr;
    switch (p.size()) {
      case 0:
        return find_in(*in, p, 0);
      case 1:
        return find_in(*in, p, 1);
      case 2:
        return find_in(*in, p, 2);
      case 3:
        return find_in(*in, p, 3);
      case 4:
        return find_in(*in, p, 4);
      default:
        return nullptr;
    }
  }

  /// A number that changes when a kernel that was in the table is replaced or leaves it. Wait-free.
  std::uint64_t changes() const noexcept { return changes_.load(std::memory_order_acquire); }

  /// Returns the kernel that is in the table afterwards: an earlier one wins. REQUIRES: no other writer.
  const LoadedKernel* insert(const PackedParameters& parameters, const LoadedKernel* kernel);
  /// Replaces the kernel of an entry that is there. REQUIRES: no other writer.
  void replace(const PackedParameters& parameters, const LoadedKernel* kernel) noexcept;
  /// Replaces a kernel wherever it is. Readers may get the old one until they look again, so it must stay
  /// loaded. REQUIRES: no other writer.
  void replace_everywhere(const LoadedKernel* old, const LoadedKernel* kernel) noexcept;
  /// REQUIRES: no reader and no other writer.
  void clear() noexcept;

 private:
  struct alignas(32) Bucket {
    std::atomic<const LoadedKernel*> kernel{nullptr};  ///< published last
    std::uint32_t shape = 0;
    std::uint32_t check = 0;  ///< the hash's upper half
    union {
      std::int32_t few[kFew];
      const std::int32_t* more;  ///< words of a key that has more than kFew
    };
    Bucket() noexcept : few{} {}
    std::uint32_t size() const noexcept { return PackedParameters::size_of(shape); }
    const std::int32_t* words() const noexcept { return size() <= kFew ? few : more; }
  };
  static_assert(sizeof(Bucket) == 32);
  struct Buckets {
    explicit Buckets(std::uint64_t size) : mask(size - 1), buckets(new Bucket[size]) {}
    std::uint64_t mask;
    std::unique_ptr<Bucket[]> buckets;
  };
  [[gnu::always_inline, gnu::flatten]] static std::uint64_t hash_of(const std::int32_t* words,
                                                                    std::size_t size) noexcept {
    return XXH3_64bits(words, size * sizeof *words);
  }
  [[gnu::always_inline]] static bool holds(const Bucket& bucket, const PackedParameters& p,
                                           std::uint32_t size, std::uint64_t hash) noexcept {
    if (bucket.check != static_cast<std::uint32_t>(hash >> 32) || bucket.shape != p.shape()) return false;
    const std::int32_t* const words = size <= kFew ? bucket.few : bucket.more;
    for (std::uint32_t i = 0; i < size; ++i) {
      if (words[i] != p.words()[i]) return false;
    }
    return true;
  }
  [[gnu::always_inline]] static const LoadedKernel* find_in(const Buckets& in, const PackedParameters& p,
                                                            std::uint32_t size) noexcept {
    const std::uint64_t hash = hash_of(p.words(), size);
    for (std::uint64_t i = hash;; ++i) {
      const Bucket& bucket = in.buckets[i & in.mask];
      const LoadedKernel* const kernel = bucket.kernel.load(std::memory_order_acquire);
      if (!kernel) return nullptr;
      if (holds(bucket, p, size, hash)) return kernel;
    }
  }
  static Bucket& free_bucket(const Buckets& in, std::uint64_t hash) noexcept;
  Bucket* bucket_of(const PackedParameters& parameters, std::uint64_t hash) const noexcept;
  void grow();

  void count_change() noexcept { changes_.fetch_add(1, std::memory_order_release); }

  std::atomic<const Buckets*> current_{nullptr};
  std::atomic<std::uint64_t> changes_{0};
  std::uint64_t used_ = 0;
  std::vector<std::unique_ptr<Buckets>> buckets_;
  std::vector<std::unique_ptr<std::int32_t[]>> more_;
};

}  // namespace kiln::runtime
