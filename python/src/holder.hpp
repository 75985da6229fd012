// Holder owns a kiln_service for its Python objects: service, templates, kernels and preparations.
// The objects may outlive close(); they raise an error then.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "errors.hpp"

namespace kiln::python {

class Holder {
 public:
  explicit Holder(kiln_service* service) noexcept : service_(service) {}
  Holder(const Holder&) = delete;
  ~Holder() { destroy(); }

  /// Unloads the service's kernels, none of which may be running. Idempotent.
  /// REQUIRES: the GIL, which is released meanwhile.
  /// Waits for calls and launches that are under way. A launch cannot slip through: the thread that saw
  /// !closed() counts its launch before it releases the GIL.
  void close() noexcept {
    closed_.store(true);  // sequentially consistent with enter()
    std::shared_mutex& calls = calls_of_this_process();
    const nanobind::gil_scoped_release release;
    {
      const std::shared_lock waiting(calls);
      if (!destroyed_) kiln_service_end_waits(service_);
    }
    const std::unique_lock lock(calls);
    // A forked child does not wait: the threads that would end these launches are not in it.
    while ((launches_.load(std::memory_order_acquire) != 0 || entered_.load() != 0) && ::getpid() == process_)
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    destroy();
  }
  bool closed() const noexcept { return closed_.load(std::memory_order_relaxed); }

  /// Counts a launch, which takes no lock. REQUIRES: the GIL, which orders the calls.
  /// begin_launch() follows !closed() without releasing the GIL.
  void begin_launch() noexcept { count(1); }
  void end_launch() noexcept { count(-1); }

  /// Counts a launch of a thread that may lack the GIL. False when the service is closed; else leave() follows.
  bool enter() noexcept {
    entered_.fetch_add(1);
    if (!closed_.load()) return true;
    leave();
    return false;
  }
  void leave() noexcept { entered_.fetch_sub(1); }

  /// Guards one call on the service or on an object of it: close() waits until the guard is gone.
  class Call {
   public:
    /// Throws a Python exception when the service is closed.
    /// REQUIRES: the GIL, which is released while the lock is awaited.
    explicit Call(Holder& holder) : lock_(holder.calls_of_this_process(), std::defer_lock) {
      {
        nanobind::gil_scoped_release release;
        lock_.lock();
      }
      if (holder.closed()) {
        set_closed();
        throw nanobind::python_error();
      }
    }
    static void set_closed() noexcept { set_invalid("this kiln.Service was closed"); }

   private:
    std::shared_lock<std::shared_mutex> lock_;
  };
  kiln_service* service() const noexcept { return service_; }

 private:
  void destroy() noexcept {
    if (!std::exchange(destroyed_, true)) kiln_service_destroy(service_);
  }
  void count(int more) noexcept {
    launches_.store(launches_.load(std::memory_order_relaxed) + more, std::memory_order_release);
  }

  /// In a forked child, threads of the parent may hold the parent's mutex for ever. The child leaks it, because the
  /// thread that forked may be in a call, too. REQUIRES: the GIL.
  std::shared_mutex& calls_of_this_process() {
    if (calls_process_ != ::getpid()) {
      static_cast<void>(calls_.release());
      calls_ = std::make_unique<std::shared_mutex>();
      calls_process_ = ::getpid();
    }
    return *calls_;
  }

  kiln_service* const service_;
  const pid_t process_ = ::getpid();
  std::atomic<bool> closed_{false};
  bool destroyed_ = false;        ///< guarded by calls_
  std::atomic<int> launches_{0};  ///< launches under way; written with the GIL
  std::atomic<int> entered_{0};   ///< launches under way between enter() and leave()
  std::unique_ptr<std::shared_mutex> calls_ = std::make_unique<std::shared_mutex>();
  pid_t calls_process_ = process_;  ///< the process that made calls_
};

/// Runs f(), which returns a kiln_status, without the GIL. Throws a Python exception when f() fails.
template <class F>
void call(const std::shared_ptr<Holder>& holder, F&& f) {
  const Holder::Call guard(*holder);
  kiln_status status;
  {
    nanobind::gil_scoped_release release;
    status = f();
  }
  check(status);
}

}  // namespace kiln::python
