// A value made at its first use, which a fork in the middle of the making does not lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

#include "base/process.hpp"

namespace kiln::base {

/// Thread-safe; once made, a read costs one load. Immutable from then on, but for what T itself allows.
///
/// A forked child uses what its parent had finished, so T must bear that, or hold what does (PerProcess,
/// generations). What another thread of the parent was only making at the fork is not there in the child,
/// which makes its own under a mutex of its own (std::call_once would wait there for ever).
///
/// Destroyed by the process that made it: a child that never made its own leaks its copy, since what the
/// parent made is the parent's to end.
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

  /// `make()` gives a T. One caller makes, the others wait for it. Nothing is kept when it throws: the next
  /// caller tries again. It must not ask for this same value.
  template <class Make>
  const T& get(Make&& make) {
    if (const T* there = made()) return *there;
    const std::lock_guard lock(making_.get());
    if (const T* there = made()) return *there;  // by whom we have waited for
    return publish(new Node{process_generation(), std::forward<Make>(make)()});
  }
  /// As if `value` had been made. False, and nothing changes, when something was made before.
  bool set(T value) {
    const std::lock_guard lock(making_.get());
    if (made()) return false;
    publish(new Node{process_generation(), std::move(value)});
    return true;
  }
  /// Null: not made yet.
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
