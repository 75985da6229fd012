#include "runtime/path/memory.hpp"

#include <algorithm>

namespace kiln::runtime {
namespace {

constexpr std::size_t kMostBytes = std::size_t{256} << 20;
constexpr base::Clock::duration kFirstRest = std::chrono::seconds(1), kLastRest = std::chrono::minutes(5);

}  // namespace

Lasting lasting(const source::Closure& closure, const std::exception_ptr& error) noexcept try {
  std::rethrow_exception(error);
} catch (const Error& e) {
  if (e.code() == Errc::compile_timeout || e.code() == Errc::compile_crashed) return Lasting::pause;
  if (e.code() != Errc::compile_failed && e.code() != Errc::unsupported_arch) return Lasting::no;
  const bool covered =
      !closure.computed && !closure.toolkit_computed && closure.computed_probes.empty() && !closure.changed();
  return covered ? Lasting::until_changed : Lasting::no;
} catch (...) {
  return Lasting::no;
}

std::shared_ptr<const StoredImage> ImageMemory::find(const Key& key) {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  const auto found = state.images.find(key);
  return found == state.images.end() ? nullptr : found->second;
}

std::optional<Obtained> ImageMemory::ask(const Key& key, const ObtainOptions& options) {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  if (const auto found = state.images.find(key);
      found != state.images.end() && !options.rejected.contains(key)) {
    ++counters_.memory_hits;
    return Obtained{found->second, Outcome::memory, {}};
  }
  throw_failure(state, key);
  return std::nullopt;
}

void ImageMemory::throw_failure(const Key& key) {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  throw_failure(state, key);
}

/// REQUIRES: the state's mutex.
void ImageMemory::throw_failure(const State& state, const Key& key) {
  if (const auto found = state.refused.find(key); found != state.refused.end()) {
    ++counters_.remembered_failures;
    std::rethrow_exception(found->second);
  }
  if (const auto found = state.resting.find(key);
      found != state.resting.end() && base::Clock::now() < found->second.until) {
    ++counters_.remembered_failures;
    std::rethrow_exception(found->second.error);
  }
}

void ImageMemory::keep(const std::shared_ptr<const StoredImage>& image) {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  if (!state.images.emplace(image->key, image).second) return;
  state.order.push_back(image->key);
  state.bytes += image->bytes.size();
  while (state.bytes > kMostBytes && state.order.size() > 1) {
    const auto oldest = state.images.find(state.order.front());
    state.bytes -= oldest->second->bytes.size();
    state.images.erase(oldest);
    state.order.pop_front();
  }
}

void ImageMemory::keep_failure(const Key& key, const std::exception_ptr& error, Lasting lasts) {
  if (lasts == Lasting::no) return;
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  if (lasts == Lasting::until_changed) {
    state.refused[key] = error;
    return;
  }
  Rest& rest = state.resting[key];
  rest.error = error;
  rest.pause = std::clamp(rest.pause * 2, kFirstRest, kLastRest);
  rest.until = base::Clock::now() + rest.pause;
}

void ImageMemory::end_rest(const Key& key) {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  state.resting.erase(key);
}

}  // namespace kiln::runtime
