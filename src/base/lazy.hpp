// A value that is made at its first use. A fork while it is being made does not block the child.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

#include "base/process.hpp"

namespace kiln::base {

/// Thread-safe. Once the value is made, a read costs one load. The value never changes, except for
/// what T itself allows.
///
/// A forked child uses a value that its parent had finished. So T must work in a child, or have members that
/// do (PerProcess, generations). A value that another thread was still making at the fork is missing in the
/// child. The child makes its own value under its own mutex; std::call_once would wait for ever there.
///
/// Only the process that made the value destroys it. A child leaks the copy that it inherited.
template <class T>
class Lazy {
 public:
  constexpr Lazy() = default;
  Lazy(const Lazy&) = delete;
  Lazy& operator=(const Lazy&) = delete;
  ~Lazy() {
    const Node* node = node_.load(std::memory_order_acquire);
    if (node && node->generation == process_generation()) delete node;
  }

  /// `make()` returns a T. One caller makes the value, and the others wait for it. When `make()` throws,
  /// nothing is kept and the next caller tries again. `make()` must not ask for this same value.
  template <class Make>
  const T& get(Make&& make) {
    if (const T* there = made()) return *there;
    const std::lock_guard lock(making_.get());
    if (const T* there = made()) return *there;  // another thread made it while this one waited
    return publish(new Node{process_generation(), std::forward<Make>(make)()});
  }
  /// Stores `value` as if it had been made. Returns false, and changes nothing, when
  /// there is a value already.
  bool set(T value) {
    const std::lock_guard lock(making_.get());
    if (made()) return false;
    publish(new Node{process_generation(), std::move(value)});
    return true;
  }
  /// Null when the value is not made yet.
  const T* made() const noexcept {
    const Node* node = node_.load(std::memory_order_acquire);
    return node ? &node->value : nullptr;
  }

 private:
  struct Node {
    std::uint64_t generation;
    const T value;
  };
  const T& publish(const Node* node) noexcept {
    node_.store(node, std::memory_order_release);
    return node->value;
  }

  std::atomic<const Node*> node_{nullptr};
  PerProcess<std::mutex> making_;
};

}  // namespace kiln::base
