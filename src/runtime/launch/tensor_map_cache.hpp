// The encoded tensor maps of one [[tensormap]] of a loaded kernel, by address and geometry.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/launch/tensor_map.hpp"

namespace kiln::runtime {

/// A map depends on its key alone, so an entry never becomes wrong. Thread-safe. find() takes no lock, since every
/// launch calls it.
class TensorMapCache {
 public:
  /// `key_words`: the length of each key.
  explicit TensorMapCache(std::size_t key_words);
  ~TensorMapCache();
  TensorMapCache(const TensorMapCache&) = delete;
  TensorMapCache& operator=(const TensorMapCache&) = delete;

  /// Copies the map of `key` to `into`. False when it is not there.
  bool find(std::span<const std::uint64_t> key, std::uint64_t* into) const noexcept;
  /// Keeps a map. The cache grows up to kMostEntries, and then forgets others. Without memory it stays as it is.
  void put(std::span<const std::uint64_t> key, const EncodedTensorMap& map) noexcept;

  static constexpr std::size_t kMostEntries = 1024;

 private:
  static constexpr std::size_t kWays = 4, kMapWords = source::kTensorMapBytes / 8;
  static constexpr std::size_t kMapAt = 1, kKeyAt = 1 + kMapWords;  // in an entry
  struct Table;
  static std::uint64_t hash_of(std::span<const std::uint64_t> key) noexcept;
  bool write(Table& table, std::span<const std::uint64_t> key, const std::uint64_t* map,
             bool may_replace) noexcept;
  Table& grown(const Table& from);

  const std::size_t key_words_;
  std::atomic<Table*> current_{nullptr};
  std::mutex writing_;  ///< guards writes to tables, and the member below
  std::vector<std::unique_ptr<Table>>
      tables_;  ///< the last one is `current_`; readers may still be in the others
};

/// Entries of words: a version, the map, the key. The version is odd while an entry is written, and 0 while it is
/// empty, so a reader that sees the same even version before and after has read one entry whole. The words between
/// are read with acquire and written with release, which keeps them between the two versions.
struct TensorMapCache::Table {
  Table(std::size_t all, std::size_t words)
      : entries(all), entry_words(words), room(std::make_unique<std::atomic<std::uint64_t>[]>(all * words)) {}

  std::atomic<std::uint64_t>* entry(std::size_t i) const noexcept { return room.get() + i * entry_words; }
  std::size_t first_way(std::uint64_t hash) const noexcept { return hash & (entries - kWays); }

  const std::size_t entries, entry_words;  ///< `entries` is a power of two
  std::unique_ptr<std::atomic<std::uint64_t>[]> room;
  std::size_t victim = 0;  ///< the next way to be replaced
};

inline std::uint64_t TensorMapCache::hash_of(std::span<const std::uint64_t> key) noexcept {
  std::uint64_t hash = 0, factor = 0x9e3779b97f4a7c15u;
  for (const std::uint64_t word : key) hash ^= word * factor, factor += 0x3c6ef372fe94f82au;  // stays odd
  return hash >> 40;  // the upper bits depend on all bits of the words
}

inline bool TensorMapCache::find(std::span<const std::uint64_t> key, std::uint64_t* into) const noexcept {
  const Table* const table = current_.load(std::memory_order_acquire);
  if (!table) return false;
  const std::size_t first = table->first_way(hash_of(key));
  for (std::size_t way = 0; way < kWays; ++way) {
    const std::atomic<std::uint64_t>* const entry = table->entry(first + way);
    const std::uint64_t version = entry->load(std::memory_order_acquire);
    if (version == 0 || version % 2 != 0) continue;
    bool same = true;
    for (std::size_t i = 0; i < key.size() && same; ++i)
      same = entry[kKeyAt + i].load(std::memory_order_acquire) == key[i];
    if (!same) continue;
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kMapWords; ++i) into[i] = entry[kMapAt + i].load(std::memory_order_acquire);
    if (entry->load(std::memory_order_relaxed) == version) return true;
  }
  return false;
}

}  // namespace kiln::runtime
