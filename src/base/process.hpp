// Which process this is: what a forked child must not use of what it inherited, and how it finds out.
//
// A child's copy of a mutex may be held by a thread that the child does not have, and its copies of
// descriptors keep the parent's OFD locks alive after the parent's death. So: objects carry the generation of
// the process that made them, the child makes fresh ones and leaks the old, and the descriptors are closed in
// the child right at the fork.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/fd.hpp"

namespace kiln::base {

/// Never 0; differs from that of every ancestor process. Costs a memory load: the kernel wipes the page it
/// lies in at a fork, so that PID namespaces (parent and child both 1) and raw clone() are seen too.
std::uint64_t process_generation() noexcept;
/// A word that holds process_generation() in this process, and another value in its children: for a path on
/// which the call is too dear. (Where the kernel cannot wipe a page at a fork, a child has to call
/// process_generation() once before the word differs.)
const std::atomic<std::uint64_t>& process_word() noexcept;

/// A descriptor that a forked child shall close at once.
void close_at_fork(int fd) noexcept;
/// Before this process closes it.
void forget_at_fork(int fd) noexcept;

/// Owns a descriptor that a forked child shall not keep.
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
  /// To an owner that forgets it; a child closes it as before.
  Fd release() noexcept { return std::move(fd_); }

 private:
  Fd fd_;
};

/// A value that a child does not inherit, for variables at namespace scope (constinit): its first use in a
/// process makes a fresh one, a child leaks the parent's, and nothing runs at load time or at exit, when
/// other objects' destructors may still use it. Thread-safe. T{} must not throw but for memory.
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

/// The same as a member: destroyed with its owner in the process that made it.
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
