#include "runtime/kernels/ready_table.hpp"

namespace kiln::runtime {

void PackedParameters::set(const std::int64_t* values, std::uint32_t count) noexcept {
  while (count > 0 && values[count - 1] == kUnset) --count;
  if (set_plain(count, [&](std::uint32_t i, bool&) { return values[i]; })) return;
  bool narrow = true;
  for (std::uint32_t i = 0; i < count; ++i)
    narrow = narrow && (values[i] == kUnset || (values[i] > INT32_MIN && values[i] <= INT32_MAX));
  shape_ = narrow ? count | kHoles : 2 * count | kWide;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (narrow)
      words_[i] = values[i] == kUnset ? INT32_MIN : static_cast<std::int32_t>(values[i]);
    else
      std::memcpy(words_ + 2 * i, values + i, sizeof *values);
  }
}

const LoadedKernel* ReadyTable::find(const PackedParameters& p) const noexcept {
  const Buckets* const in = current_.load(std::memory_order_acquire);
  return in ? find_in(*in, p, p.size()) : nullptr;
}

ReadyTable::Bucket* ReadyTable::bucket_of(const PackedParameters& p, std::uint64_t hash) const noexcept {
  if (buckets_.empty()) return nullptr;
  const Buckets& in = *buckets_.back();
  for (std::uint64_t i = hash;; ++i) {
    Bucket& bucket = in.buckets[i & in.mask];
    if (!bucket.kernel.load(std::memory_order_relaxed)) return nullptr;
    if (holds(bucket, p, p.size(), hash)) return &bucket;
  }
}

ReadyTable::Bucket& ReadyTable::free_bucket(const Buckets& in, std::uint64_t hash) noexcept {
  std::uint64_t i = hash;
  while (in.buckets[i & in.mask].kernel.load(std::memory_order_relaxed)) ++i;
  return in.buckets[i & in.mask];
}

const LoadedKernel* ReadyTable::insert(const PackedParameters& p, const LoadedKernel* kernel) {
  const std::uint64_t hash = hash_of(p.words(), p.size());
  if (const Bucket* present = bucket_of(p, hash)) return present->kernel.load(std::memory_order_relaxed);
  if (p.size() > kFew) {
    more_.emplace_back(new std::int32_t[p.size()]);
    std::memcpy(more_.back().get(), p.words(), p.size() * sizeof(std::int32_t));
  }
  // A small table is kept emptier, because a hit there costs most where the branch predictor guesses wrong at
  // a taken bucket.
  const auto most = [](std::uint64_t size) { return size <= 1024 ? size / 4 : size / 2; };
  if (buckets_.empty() || used_ + 1 > most(buckets_.back()->mask + 1)) grow();
  Bucket& bucket = free_bucket(*buckets_.back(), hash);
  bucket.shape = p.shape();
  bucket.check = static_cast<std::uint32_t>(hash >> 32);
  if (p.size() > kFew)
    bucket.more = more_.back().get();
  else
    std::memcpy(bucket.few, p.words(), p.size() * sizeof(std::int32_t));
  ++used_;
  bucket.kernel.store(kernel, std::memory_order_release);
  return kernel;
}

void ReadyTable::replace(const PackedParameters& p, const LoadedKernel* kernel) noexcept {
  if (Bucket* bucket = bucket_of(p, hash_of(p.words(), p.size()))) {
    bucket->kernel.store(kernel, std::memory_order_release);
    count_change();
  }
}

void ReadyTable::grow() {
  auto larger = std::make_unique<Buckets>(buckets_.empty() ? 16 : (buckets_.back()->mask + 1) * 2);
  if (!buckets_.empty()) {
    const Buckets& old = *buckets_.back();
    for (std::uint64_t i = 0; i <= old.mask; ++i) {
      const Bucket& from = old.buckets[i];
      const LoadedKernel* const kernel = from.kernel.load(std::memory_order_relaxed);
      if (!kernel) continue;
      Bucket& to = free_bucket(*larger, hash_of(from.words(), from.size()));
      to.shape = from.shape, to.check = from.check;
      std::memcpy(to.few, from.few, sizeof to.few);  // this copies `more`, too
      to.kernel.store(kernel, std::memory_order_relaxed);
    }
  }
  buckets_.push_back(std::move(larger));
  current_.store(buckets_.back().get(), std::memory_order_release);
}

void ReadyTable::replace_everywhere(const LoadedKernel* old, const LoadedKernel* kernel) noexcept {
  const Buckets* const in = current_.load(std::memory_order_relaxed);
  if (!in) return;
  for (std::uint64_t i = 0; i <= in->mask; ++i)
    if (in->buckets[i].kernel.load(std::memory_order_relaxed) == old)
      in->buckets[i].kernel.store(kernel, std::memory_order_release);
  count_change();
}

void ReadyTable::clear() noexcept {
  current_.store(nullptr, std::memory_order_release);
  count_change();
  buckets_.clear();
  more_.clear();
  used_ = 0;
}

}  // namespace kiln::runtime
