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

/// Parameters by position, as numbers; what a hit is found by. Those that were not given are unset, and left
/// out at the end. A word of 32 bits each, so that a table's bucket stays small; two each when one of them
/// does not fit.
class PackedParameters {
 public:
  static constexpr std::int64_t kUnset = INT64_MIN;

  /// REQUIRES: count <= kMaxParameters.
  void set(const std::int64_t* values, std::uint32_t count) noexcept;
  /// The same for what needs no care: nothing unset, and each fits a word. `each(i, fits)` gives value i.
  /// False, and nothing is set, when one did not fit or `each` said so.
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
  static constexpr std::uint32_t kHoles = 1u << 30;  ///< INT32_MIN is an unset one

  std::uint32_t shape_ = 0;
  std::int32_t words_[2 * source::kMaxParameters];
};

/// Open addressing over buckets that hold the parameters themselves, two to a cache line: a hit is one line
/// of a big table. A reader follows one atomic pointer to the current buckets, and a bucket's kernel is
/// published last. Growing publishes a larger copy; the smaller ones stay until the table is cleared, so that
/// no reader ever holds freed memory. Writers are serialised by the caller.
class ReadyTable {
 public:
  ReadyTable() = default;
  ReadyTable(const ReadyTable&) = delete;
  ReadyTable& operator=(const ReadyTable&) = delete;

  /// Wait-free, as find_few.
  const LoadedKernel* find(const PackedParameters& p) const noexcept;
  /// For at most kFew words, null for more: inline, and neither hash nor comparison looks at a length.
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

  /// The kernel that is in the table afterwards: an earlier one wins. REQUIRES: no other writer.
  const LoadedKernel* insert(const PackedParameters& parameters, const LoadedKernel* kernel);
  /// Puts another kernel in the place of one that is there. REQUIRES: no other writer.
  void replace(const PackedParameters& parameters, const LoadedKernel* kernel) noexcept;
  /// REQUIRES: no reader and no other writer.
  void clear() noexcept;

 private:
  struct alignas(32) Bucket {
    std::atomic<const LoadedKernel*> kernel{nullptr};  ///< published last
    std::uint32_t shape = 0;
    std::uint32_t check = 0;  ///< the hash's upper half
    union {
      std::int32_t few[kFew];
      const std::int32_t* more;  ///< of more than kFew words
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

  std::atomic<const Buckets*> current_{nullptr};
  std::uint64_t used_ = 0;
  std::vector<std::unique_ptr<Buckets>> buckets_;
  std::vector<std::unique_ptr<std::int32_t[]>> more_;
};

}  // namespace kiln::runtime
