// Owners of kernels within a service, and plans made ready in bulk.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kiln/kernel_template.hpp"

namespace kiln {
inline namespace v1 {

/// Counts of a Preparation; see kiln_progress in kiln.h.
using Progress = kiln_progress;

/// What Service::prepare is asked for; see kiln_prepare in kiln.h.
struct PrepareOptions {
  enum class Until : int { ready = KILN_UNTIL_READY, image = KILN_UNTIL_IMAGE };
  Until until = Until::ready;
  Device device = Device::current();
  double deadline_s = 0;  ///< seconds from now after which nothing is begun or waited for; 0: none
  bool may_compile = true;
  /// One call at a time, on kiln's threads; what it throws is swallowed. Not called after the Preparation is
  /// gone.
  std::function<void(const Progress&)> on_progress;
};

/// A plan that is being made ready. Move-only; destroying it cancels what has not begun.
class Preparation {
 public:
  Preparation(kiln_preparation* handle, std::shared_ptr<void> keep) noexcept
      : keep_(std::move(keep)), handle_(handle) {}
  Preparation(Preparation&&) = default;
  /// What is assigned over goes before what its on_progress is called through.
  Preparation& operator=(Preparation&& other) noexcept {
    handle_ = std::move(other.handle_);
    keep_ = std::move(other.keep_);
    return *this;
  }
  /// Until all is done; throws the first failure then.
  Progress wait() const {
    Progress out{};
    out.struct_size = sizeof out;
    detail::check(kiln_preparation_wait(handle_.get(), -1, &out));
    return out;
  }
  /// As it stands, without waiting and without throwing what failed.
  Progress progress() const noexcept {
    Progress out{};
    out.struct_size = sizeof out;
    static_cast<void>(kiln_preparation_wait(handle_.get(), 0, &out));
    return out;
  }
  /// True when all is done, well or not.
  bool wait_for(double seconds) const noexcept {
    Progress out{};
    out.struct_size = sizeof out;
    const kiln_status status = kiln_preparation_wait(handle_.get(), seconds, &out);
    return status == KILN_OK || (out.total > 0 && out.done == out.total);
  }

 private:
  std::shared_ptr<void> keep_;  // what on_progress is called through
  std::unique_ptr<kiln_preparation, detail::Release<kiln_preparation, kiln_preparation_destroy>> handle_;
};

/// Owns what is opened from it: kernels are unloaded when it is released or destroyed. Must be destroyed
/// before its Service. Move-only.
class Scope {
 public:
  explicit Scope(kiln_scope* handle) noexcept : handle_(handle) {}
  /// As Service::open.
  KernelTemplate open(const std::string& name, const Device& device = Device::current()) {
    kiln_template* out = nullptr;
    detail::check(kiln_scope_open(handle_.get(), name.c_str(), device.ordinal,
                                  device.arch.empty() ? nullptr : device.arch.c_str(), &out));
    return KernelTemplate(out);
  }
  /// Unloads its kernels; its templates load again when asked. REQUIRES: its kernels are quiet, and no thread
  /// is in a call on its templates.
  void release() { detail::check(kiln_scope_release(handle_.get())); }
  kiln_scope* handle() const noexcept { return handle_.get(); }

 private:
  std::unique_ptr<kiln_scope, detail::Release<kiln_scope, kiln_scope_destroy>> handle_;
};

}  // namespace v1
}  // namespace kiln
