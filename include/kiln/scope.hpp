// Owners of kernels within a service, and the preparation of whole plans.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kiln/kernel_template.hpp"

namespace kiln {
inline namespace v1 {

/// Counts of a Preparation (kiln_progress in kiln.h).
using Progress = kiln_progress;

/// How Service::prepare works (kiln_prepare in kiln.h).
struct PrepareOptions {
  enum class Until : int { ready = KILN_UNTIL_READY, image = KILN_UNTIL_IMAGE };
  Until until = Until::ready;
  Device device = Device::current();
  double deadline_s = 0;  ///< seconds from now after which nothing is begun or waited for; 0: no deadline
  bool may_compile = true;
  /// Receives the progress on kiln's threads, one call at a time. Exceptions that it throws are swallowed.
  /// It is not called after the Preparation is destroyed.
  std::function<void(const Progress&)> on_progress;
};

/// A plan whose kernels are being made ready. Move-only. The destructor cancels what has not begun.
class Preparation {
 public:
  Preparation(kiln_preparation* handle, std::shared_ptr<void> keep) noexcept
      : keep_(std::move(keep)), handle_(handle) {}
  Preparation(Preparation&&) = default;
  /// The old handle is destroyed before the function that its progress is sent to.
  Preparation& operator=(Preparation&& other) noexcept {
    handle_ = std::move(other.handle_);
    keep_ = std::move(other.keep_);
    return *this;
  }
  /// Waits until everything is done. Throws the first failure then.
  Progress wait() const {
    Progress out{};
    out.struct_size = sizeof out;
    detail::check(kiln_preparation_wait(handle_.get(), -1, &out));
    return out;
  }
  /// The progress of this moment. Neither waits nor throws.
  Progress progress() const noexcept {
    Progress out{};
    out.struct_size = sizeof out;
    static_cast<void>(kiln_preparation_wait(handle_.get(), 0, &out));
    return out;
  }
  /// Waits at most `seconds`. Returns true when everything is done, also with failures.
  bool wait_for(double seconds) const noexcept {
    Progress out{};
    out.struct_size = sizeof out;
    const kiln_status status = kiln_preparation_wait(handle_.get(), seconds, &out);
    return status == KILN_OK || (out.total > 0 && out.done == out.total);
  }

 private:
  std::shared_ptr<void> keep_;  // the function that the progress is sent to
  std::unique_ptr<kiln_preparation, detail::Release<kiln_preparation, kiln_preparation_destroy>> handle_;
};

/// Owns the templates that are opened from it and their kernels. Move-only.
/// Its kernels are unloaded when it is released or destroyed. It must be destroyed before its Service.
class Scope {
 public:
  explicit Scope(kiln_scope* handle) noexcept : handle_(handle) {}
  /// Opens a template that belongs to this scope. See Service::open.
  KernelTemplate open(const std::string& name, const Device& device = Device::current()) {
    kiln_template* out = nullptr;
    detail::check(kiln_scope_open(handle_.get(), name.c_str(), device.ordinal,
                                  device.arch.empty() ? nullptr : device.arch.c_str(), &out));
    return KernelTemplate(out);
  }
  /// Unloads the kernels. The templates stay open, and load kernels again on request.
  /// REQUIRES: no kernel runs or is part of a graph that will be launched, and no thread is in a call on its
  /// templates.
  void release() { detail::check(kiln_scope_release(handle_.get())); }
  kiln_scope* handle() const noexcept { return handle_.get(); }

 private:
  std::unique_ptr<kiln_scope, detail::Release<kiln_scope, kiln_scope_destroy>> handle_;
};

}  // namespace v1
}  // namespace kiln
