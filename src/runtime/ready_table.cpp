#include "runtime/ready_table.hpp"

#define XXH_INLINE_ALL  // a hit is short: a call and a switch over lengths would be a third of it
#include <xxhash.h>

namespace kiln::runtime {

std::uint64_t ReadyTable::hash_of(const PackedParameters& p) noexcept {
  return XXH3_64bits(p.values, p.count * sizeof(std::int64_t));
}

bool ReadyTable::holds(const Slot& slot, const PackedParameters& p, std::uint64_t hash) noexcept {
  if (slot.check != static_cast<std::uint32_t>(hash >> 32) || slot.count != p.count) return false;
  const std::int64_t* words = slot.words();
  for (std::uint32_t i = 0; i < p.count; ++i) {
    if (words[i] != p.values[i]) return false;
  }
  return true;
}

const LoadedKernel* ReadyTable::find(const PackedParameters& p) const noexcept {
  const Slots* const in = current_.load(std::memory_order_acquire);
  if (!in) return nullptr;
  const std::uint64_t hash = hash_of(p);
  for (std::uint64_t i = hash;; ++i) {
    const Slot& slot = in->slots[i & in->mask];
    const LoadedKernel* const kernel = slot.kernel.load(std::memory_order_acquire);
    if (!kernel) return nullptr;
    if (holds(slot, p, hash)) return kernel;
  }
}

ReadyTable::Slot* ReadyTable::slot_of(const PackedParameters& p, std::uint64_t hash) const noexcept {
  if (slots_.empty()) return nullptr;
  const Slots& in = *slots_.back();
  for (std::uint64_t i = hash;; ++i) {
    Slot& slot = in.slots[i & in.mask];
    if (!slot.kernel.load(std::memory_order_relaxed)) return nullptr;
    if (holds(slot, p, hash)) return &slot;
  }
}

ReadyTable::Slot& ReadyTable::free_slot(const Slots& in, std::uint64_t hash) noexcept {
  std::uint64_t i = hash;
  while (in.slots[i & in.mask].kernel.load(std::memory_order_relaxed)) ++i;
  return in.slots[i & in.mask];
}

const LoadedKernel* ReadyTable::insert(const PackedParameters& p, const LoadedKernel* kernel) {
  const std::uint64_t hash = hash_of(p);
  if (const Slot* present = slot_of(p, hash)) return present->kernel.load(std::memory_order_relaxed);
  if (p.count > kInline) {
    more_.emplace_back(new std::int64_t[p.count]);
    std::memcpy(more_.back().get(), p.values, p.count * sizeof(std::int64_t));
  }
  if (slots_.empty() || (used_ + 1) * 2 > slots_.back()->mask) grow();
  Slot& slot = free_slot(*slots_.back(), hash);
  slot.count = p.count;
  slot.check = static_cast<std::uint32_t>(hash >> 32);
  if (p.count > kInline)
    slot.more = more_.back().get();
  else
    std::memcpy(slot.values, p.values, p.count * sizeof(std::int64_t));
  ++used_;
  slot.kernel.store(kernel, std::memory_order_release);
  return kernel;
}

void ReadyTable::replace(const PackedParameters& p, const LoadedKernel* kernel) noexcept {
  if (Slot* slot = slot_of(p, hash_of(p))) slot->kernel.store(kernel, std::memory_order_release);
}

void ReadyTable::grow() {
  auto larger = std::make_unique<Slots>(slots_.empty() ? 16 : (slots_.back()->mask + 1) * 2);
  if (!slots_.empty()) {
    const Slots& old = *slots_.back();
    for (std::uint64_t i = 0; i <= old.mask; ++i) {
      const Slot& from = old.slots[i];
      const LoadedKernel* const kernel = from.kernel.load(std::memory_order_relaxed);
      if (!kernel) continue;
      Slot& to = free_slot(*larger, XXH3_64bits(from.words(), from.count * sizeof(std::int64_t)));
      to.count = from.count, to.check = from.check;
      std::memcpy(to.values, from.values, sizeof to.values);  // or `more`
      to.kernel.store(kernel, std::memory_order_relaxed);
    }
  }
  slots_.push_back(std::move(larger));
  current_.store(slots_.back().get(), std::memory_order_release);
}

void ReadyTable::clear() noexcept {
  current_.store(nullptr, std::memory_order_release);
  slots_.clear();
  more_.clear();
  used_ = 0;
}

}  // namespace kiln::runtime
