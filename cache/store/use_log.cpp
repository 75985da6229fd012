#include "cache/store/use_log.hpp"

#include <cstring>

namespace kiln::cache {

std::size_t KeyHash::operator()(const Key& key) const noexcept {
  std::uint64_t a, b;  // digests are uniform already
  std::memcpy(&a, key.specialisation.bytes.data(), sizeof a);
  std::memcpy(&b, key.toolchain.bytes.data(), sizeof b);
  return static_cast<std::size_t>(a ^ b * 0x9E3779B97F4A7C15u);
}

bool UseLog::note(const Key& key) noexcept try {
  const std::lock_guard lock(mutex_);
  const bool first = used_.empty();
  if (used_.size() < kLimit || used_.contains(key)) ++used_[key];
  return first;
} catch (...) {
  return false;  // no memory: not remembered
}

std::vector<Key> UseLog::held() const {
  const std::lock_guard lock(mutex_);
  std::vector<Key> out;
  out.reserve(held_.size() + used_.size());
  for (const auto& [key, nothing] : held_) out.push_back(key);
  for (const auto& [key, count] : used_)
    if (!held_.contains(key)) out.push_back(key);
  return out;
}

bool UseLog::empty() const {
  const std::lock_guard lock(mutex_);
  return used_.empty();
}

std::vector<std::pair<Key, std::uint64_t>> UseLog::take(base::Clock::duration refresh) {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, count] : used_)
    if (held_.size() < kLimit) held_.try_emplace(key);
  if (base::Clock::now() - refreshed_ >= refresh) {
    refreshed_ = base::Clock::now();
    for (const auto& [key, nothing] : held_) used_.try_emplace(key, 0);
  }
  std::vector<std::pair<Key, std::uint64_t>> out(used_.begin(), used_.end());
  used_.clear();
  return out;
}

}  // namespace kiln::cache
