// The identity of this process, by which a forked child finds out what it must not use.
//
// A child's copy of a mutex may be held by a thread that the child does not have. A child's copies of
// descriptors keep the parent's OFD locks alive after the parent's death. So objects carry the generation of
// the process that made them; the child makes fresh objects and leaks the old ones. The child closes the
// descriptors right at the fork.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/fd.hpp"

namespace kiln::base {

/// A number that is never 0 and that differs from the number of every ancestor process. Costs a memory load:
/// the kernel wipes the page of the number at a fork. So raw clone() and PID namespaces, where parent and
/// child may both have pid 1, are noticed too.
std::uint64_t process_generation() noexcept;
/// A word that holds process_generation() in this process, and another value in its children. It is for paths
/// on which the call costs too much. Where the kernel cannot wipe a page at a fork, the word differs only
/// after the child has called process_generation() once.
const std::atomic<std::uint64_t>& process_word() noexcept;

/// Registers a descriptor that a forked child closes at once.
void close_at_fork(int fd) noexcept;
/// Takes the registration back. Call it before this process closes the descriptor.
void forget_at_fork(int fd) noexcept;

/// Owns a descriptor that a forked child must not keep.
class ClosedAtFork {
 public:
  explicit ClosedAtFork(int fd) noexcept : fd_(fd) {
    if (fd_) close_at_fork(fd_.get());
  }
  ~ClosedAtFork() {
    if (fd_) forget_at_fork(fd_.get());
  }
  ClosedAtFork(const ClosedAtFork&) = delete;
  ClosedAtFork& operator=(const ClosedAtFork&) = delete;
  int get() const noexcept { return fd_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  /// Gives the descriptor to an owner that calls forget_at_fork(). Until then a child still closes it.
  Fd release() noexcept { return std::move(fd_); }

 private:
  Fd fd_;
};

/// A value that a child does not inherit, for variables at namespace scope (constinit). The first use
/// in a process makes a fresh value, and a child leaks the parent's. Nothing runs at load time.
/// Nothing runs at exit, when destructors of other objects may still use the value. Thread-safe. T{}
/// may throw std::bad_alloc only.
template <class T>
class ProcessWide {
 public:
  constexpr ProcessWide() = default;
  ProcessWide(const ProcessWide&) = delete;
  ProcessWide& operator=(const ProcessWide&) = delete;
  T& get() {
    const std::uint64_t generation = process_generation();
    Node* node = node_.load(std::memory_order_acquire);
    while (!node || node->generation != generation) {
      Node* fresh = new Node{generation, {}};
      if (node_.compare_exchange_strong(node, fresh, std::memory_order_acq_rel)) return fresh->value;
      delete fresh;
    }
    return node->value;
  }

 protected:
  struct Node {
    std::uint64_t generation;
    T value;
  };
  std::atomic<Node*> node_{nullptr};
};

/// A ProcessWide for use as a member. It is destroyed with its owner, in the process that made the value.
template <class T>
class PerProcess : public ProcessWide<T> {
 public:
  constexpr PerProcess() = default;
  ~PerProcess() {
    auto* node = this->node_.load(std::memory_order_acquire);
    if (node && node->generation == process_generation()) delete node;
  }
};

}  // namespace kiln::base
