// The members of a family: one handle whose launches pick a kernel by the value of an argument.
#pragma once

#include <cstdint>
#include <memory>

#include "kiln/kernel.hpp"

namespace kiln {
inline namespace v1 {

/// A view of all members of a [family] that a Service or Scope owns. Copies are cheap. Thread-safe.
/// It must not be used after its owner has released the kernels, or after the context is destroyed.
class Family {
 public:
  Family() = default;
  explicit Family(const kiln_family* handle) noexcept : handle_(handle) {}

  /// Launches the member that serves the family's argument: the first one whose edge is not below its value, or the
  /// last one. Arguments and errors are as in Kernel::operator(). Nothing is compiled or loaded.
  template <class... Args>
  void operator()(CUstream stream, const Args&... args) const {
    const void* data[sizeof...(Args) + 1] = {static_cast<const void*>(std::addressof(args))..., nullptr};
    detail::check(
        kiln_family_launch(handle_, stream, detail::ArgTypes<Args...>::value, data, sizeof...(Args)));
  }
  /// The member that serves `value` of the family's argument.
  Kernel member(std::int64_t value) const {
    const kiln_kernel* out = nullptr;
    detail::check(kiln_family_member(handle_, value, &out));
    return Kernel(out);
  }
  /// The argument, the parameter and the edges (kiln_family_info in kiln.h).
  kiln_family_info info() const {
    kiln_family_info out{};
    out.struct_size = sizeof out;
    detail::check(kiln_family_get_info(handle_, &out));
    return out;
  }
  const kiln_family* handle() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != nullptr; }

 private:
  const kiln_family* handle_ = nullptr;
};

}  // namespace v1
}  // namespace kiln
