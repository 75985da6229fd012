// Who owns a kiln_service from Python: it stays until it is closed, and what came from it says so afterwards.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "errors.hpp"

namespace kiln::python {

class Holder {
 public:
  explicit Holder(kiln_service* service) noexcept : service_(service) {}
  Holder(const Holder&) = delete;
  ~Holder() { close(); }

  /// Unloads its kernels, which must be quiet; waits for calls under way. Idempotent. REQUIRES: no GIL, or
  /// nobody in a call.
  void close() noexcept {
    const std::unique_lock lock(calls_);
    if (!closed_.exchange(true)) kiln_service_destroy(service_);
  }
  bool closed() const noexcept { return closed_.load(std::memory_order_relaxed); }

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
  kiln_service* const service_;
  std::atomic<bool> closed_{false};
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
