// Ready kernels of one template, found by packed parameters: readers take no lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "base/hash.hpp"
#include "source/manifest.hpp"

namespace kiln::runtime {

class LoadedKernel;

/// Parameters as the caller gave them, by position, before defaults: what a hit is found by. Unset ones are
/// kUnset.
struct PackedParameters {
  static constexpr std::int64_t kUnset = INT64_MIN;
  std::uint32_t count = 0;
  std::array<std::int64_t, source::kMaxParameters> values;

  friend bool operator==(const PackedParameters& a, const PackedParameters& b) noexcept {
    return a.count == b.count &&
           std::memcmp(a.values.data(), b.values.data(), a.count * sizeof(std::int64_t)) == 0;
  }
  std::uint64_t hash() const noexcept {
    return base::hash64({reinterpret_cast<const char*>(values.data()), count * sizeof(std::int64_t)});
  }
};

/// Insert-only open addressing. A reader follows one atomic pointer to the current slots; growing publishes a
/// larger copy, and the smaller ones stay until the table goes, so that no reader ever holds freed memory.
/// Kernels are never removed.
class ReadyTable {
 public:
  ReadyTable() { grow(16); }

  LoadedKernel* find(const PackedParameters& parameters) const noexcept {
    const Slots& slots = *current_.load(std::memory_order_acquire);
    for (std::uint64_t i = parameters.hash();; ++i) {
      const Entry* entry = slots.entries[i & slots.mask].load(std::memory_order_acquire);
      if (!entry) return nullptr;
      if (entry->parameters == parameters) return entry->kernel;
    }
  }

  /// The kernel that is in the table afterwards: an earlier one wins.
  LoadedKernel* insert(const PackedParameters& parameters, LoadedKernel* kernel) {
    std::lock_guard lock(mutex_);
    if (LoadedKernel* present = find(parameters)) return present;
    if (entries_.size() * 2 >= slots_.back()->mask) grow((slots_.back()->mask + 1) * 2);
    entries_.push_back(std::make_unique<Entry>(Entry{parameters, kernel}));
    place(*slots_.back(), entries_.back().get());
    return kernel;
  }

 private:
  struct Entry {
    PackedParameters parameters;
    LoadedKernel* kernel;
  };
  struct Slots {
    explicit Slots(std::uint64_t size) : mask(size - 1), entries(new std::atomic<const Entry*>[size]()) {}
    std::uint64_t mask;
    std::unique_ptr<std::atomic<const Entry*>[]> entries;
  };
  static void place(Slots& slots, const Entry* entry) {
    std::uint64_t i = entry->parameters.hash();
    while (slots.entries[i & slots.mask].load(std::memory_order_relaxed)) ++i;
    slots.entries[i & slots.mask].store(entry, std::memory_order_release);
  }
  void grow(std::uint64_t size) {
    slots_.push_back(std::make_unique<Slots>(size));
    for (const auto& entry : entries_) place(*slots_.back(), entry.get());
    current_.store(slots_.back().get(), std::memory_order_release);
  }

  std::atomic<const Slots*> current_{nullptr};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::unique_ptr<Slots>> slots_;
};

}  // namespace kiln::runtime
