// Who owns a kiln_service from Python: it stays until it is closed, and what came from it says so afterwards.
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

  /// Unloads its kernels, which must be quiet; waits for calls and launches under way. Idempotent. REQUIRES:
  /// the GIL, which it gives up for its time: who has seen with the GIL that it is open is done, or counted.
  void close() noexcept {
    closed_.store(true, std::memory_order_relaxed);
    const nanobind::gil_scoped_release release;
    const std::unique_lock lock(calls_);
    // In a forked child, nobody ends what other threads had begun.
    while (launches_.load(std::memory_order_acquire) != 0 && ::getpid() == process_)
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    destroy();
  }
  bool closed() const noexcept { return closed_.load(std::memory_order_relaxed); }

  /// A launch, which takes no lock: both with the GIL, which orders them, begin() right after !closed().
  void begin_launch() noexcept { count(1); }
  void end_launch() noexcept { count(-1); }

  /// One call on the service or what came from it, without the GIL: nobody closes it meanwhile.
  class Call {
   public:
    /// Throws a Python exception when it is closed. REQUIRES: the GIL, which it gives up for its time.
    explicit Call(Holder& holder) : lock_(holder.calls_, std::defer_lock) {
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

  kiln_service* const service_;
  const pid_t process_ = ::getpid();
  std::atomic<bool> closed_{false};
  bool destroyed_ = false;        ///< guarded by calls_
  std::atomic<int> launches_{0};  ///< under way; written with the GIL
  std::shared_mutex calls_;
};

/// `f()`, which returns a kiln_status, without the GIL; its failure as a Python exception.
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
