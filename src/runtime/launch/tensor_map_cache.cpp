#include "runtime/launch/tensor_map_cache.hpp"

#include <algorithm>

namespace kiln::runtime {
namespace {

constexpr std::size_t kFirstEntries = 16;

}  // namespace

TensorMapCache::TensorMapCache(std::size_t key_words) : key_words_(key_words) {}
TensorMapCache::~TensorMapCache() = default;

/// Writes the entry into a free way, or over another one. REQUIRES: `writing_` is held.
bool TensorMapCache::write(Table& table, std::span<const std::uint64_t> key, const std::uint64_t* map,
                           bool may_replace) noexcept {
  const std::size_t first = table.first_way(hash_of(key));
  std::size_t way = 0;
  while (way < kWays && table.entry(first + way)->load(std::memory_order_relaxed) != 0) ++way;
  if (way == kWays) {
    if (!may_replace) return false;
    way = table.victim++ % kWays;
  }
  std::atomic<std::uint64_t>* const entry = table.entry(first + way);
  const std::uint64_t version = entry->load(std::memory_order_relaxed);
  entry->store(version + 1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < key_words_; ++i) entry[kKeyAt + i].store(key[i], std::memory_order_release);
  for (std::size_t i = 0; i < kMapWords; ++i) entry[kMapAt + i].store(map[i], std::memory_order_release);
  entry->store(version + 2, std::memory_order_release);
  return true;
}

/// A larger table with the entries of `from`. REQUIRES: `writing_` is held.
TensorMapCache::Table& TensorMapCache::grown(const Table& from) {
  auto larger = std::make_unique<Table>(from.entries * 4, from.entry_words);
  std::vector<std::uint64_t> words(from.entry_words);
  for (std::size_t i = 0; i < from.entries; ++i) {
    const std::atomic<std::uint64_t>* const entry = from.entry(i);
    if (entry->load(std::memory_order_relaxed) == 0) continue;
    for (std::size_t w = 0; w < from.entry_words; ++w) words[w] = entry[w].load(std::memory_order_relaxed);
    write(*larger, {words.data() + kKeyAt, key_words_}, words.data() + kMapAt, true);
  }
  tables_.push_back(std::move(larger));
  return *tables_.back();
}

void TensorMapCache::put(std::span<const std::uint64_t> key, const EncodedTensorMap& map) noexcept try {
  const std::lock_guard lock(writing_);
  std::array<std::uint64_t, kMapWords> there;
  if (find(key, there.data())) return;  // another thread was first
  if (tables_.empty()) tables_.push_back(std::make_unique<Table>(kFirstEntries, kKeyAt + key_words_));
  Table* table = tables_.back().get();
  while (!write(*table, key, map.words.data(), table->entries >= kMostEntries)) table = &grown(*table);
  current_.store(table, std::memory_order_release);
} catch (...) {  // no memory: the map is made again for the next launch
}

}  // namespace kiln::runtime
