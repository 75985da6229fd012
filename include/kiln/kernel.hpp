// A loaded kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kiln/detail.hpp"

namespace kiln {
inline namespace v1 {

/// Where an image came from (KILN_OUTCOME_* in kiln.h).
enum class Outcome : int {
  memory = KILN_OUTCOME_MEMORY,
  disk = KILN_OUTCOME_DISK,
  layer = KILN_OUTCOME_LAYER,
  remote = KILN_OUTCOME_REMOTE,
  compiled = KILN_OUTCOME_COMPILED,
  waited = KILN_OUTCOME_WAITED,
};

/// The geometry of a raw launch (kiln_launch_config in kiln.h). Grid and block begin as 1 x 1 x 1.
struct LaunchConfig : kiln_launch_config {
  LaunchConfig() : kiln_launch_config{} {
    struct_size = sizeof(kiln_launch_config);
    for (int i = 0; i < 3; ++i) grid[i] = block[i] = 1;
  }
};

/// A variable of an image: its address in device memory and its size in bytes.
struct Global {
  DevicePtr address;
  std::size_t bytes;
};

/// A view of a kernel that a Service or Scope owns. Copies are cheap. Thread-safe.
/// It must not be used after its owner has released the kernel, or after the context is destroyed.
class Kernel {
 public:
  Kernel() = default;
  explicit Kernel(const kiln_kernel* handle) noexcept : handle_(handle) {}

  /// Launches with the grid, block and shared memory of the manifest. The kernel's context must be current.
  ///
  /// Arguments are in the manifest's order, and [runtime] values follow them.
  /// Optional arguments at the end may be left out when the manifest has no [runtime] values.
  /// A pointer is a device pointer or a DevicePtr. Integers, enums and floats are converted to the declared
  /// type when the value fits. Structs and tensor maps are copied by their bytes, at any alignment.
  /// A launch allocates nothing once the kernel has seen these argument types.
  ///
  /// Errors before anything is launched:
  /// - invalid_argument: a wrong count, kind or size of arguments, or a number that does not fit
  /// - requirement: an unaligned pointer, a broken [[require]], or a geometry that the device cannot launch
  ///
  /// Error(driver): the driver refused the launch. The message says what to do.
  template <class... Args>
  void operator()(CUstream stream, const Args&... args) const {
    const void* data[sizeof...(Args) + 1] = {static_cast<const void*>(std::addressof(args))..., nullptr};
    detail::check(
        kiln_kernel_launch(handle_, stream, detail::ArgTypes<Args...>::value, data, sizeof...(Args)));
  }
  /// Launches with a geometry and parameter pointers as cuLaunchKernelEx takes them. kiln checks nothing.
  void launch(const LaunchConfig& config, void** parameters) const {
    detail::check(kiln_kernel_launch_raw(handle_, &config, parameters));
  }

  /// Another entry point of the same image: a [[kernel]] of the manifest, which shares the image's variables.
  /// It lives as long as this kernel. Throws Error(invalid_argument) when there is none of that name.
  Kernel entry(const char* name) const {
    const kiln_kernel* out = nullptr;
    detail::check(kiln_kernel_entry(handle_, name, &out));
    return Kernel(out);
  }
  /// A [[global]] of the manifest: a __device__ or __constant__ variable in the kernel's context.
  /// Throws Error(invalid_argument) when there is none of that name.
  Global global(const char* name) const {
    kiln_global out{};
    out.struct_size = sizeof out;
    detail::check(kiln_kernel_global(handle_, name, &out));
    return {DevicePtr(out.address), static_cast<std::size_t>(out.bytes)};
  }
  /// An [export] of the manifest: an integer constant of the source, such as the size of a struct.
  /// Throws Error(invalid_argument) when there is none of that name.
  std::int64_t constant(const char* name) const {
    std::int64_t out = 0;
    detail::check(kiln_kernel_constant(handle_, name, &out));
    return out;
  }

  /// The driver's function, for callers that launch it themselves.
  CUfunction function() const noexcept { return kiln_kernel_function(handle_); }
  /// Registers, spills, shared memory and names (kiln_kernel_info in kiln.h).
  kiln_kernel_info info() const {
    kiln_kernel_info out{};
    out.struct_size = sizeof out;
    detail::check(kiln_kernel_get_info(handle_, &out));
    return out;
  }
  const kiln_kernel* handle() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != nullptr; }

 private:
  const kiln_kernel* handle_ = nullptr;
};

/// Owns the bytes of an image. Needs no GPU. Move-only.
class Image {
 public:
  Image() { raw_.struct_size = sizeof raw_; }
  Image(Image&& other) noexcept : raw_(other.raw_) { other.raw_.owner = nullptr; }
  Image& operator=(Image&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Image() { kiln_image_release(&raw_); }

  Outcome outcome() const noexcept { return static_cast<Outcome>(raw_.outcome); }
  std::string key() const { return raw_.key; }
  std::string arch() const { return raw_.arch; }
  std::string lowered_name() const { return raw_.lowered_name; }
  std::string specialization() const { return raw_.specialization; }
  std::string_view cubin() const noexcept { return {static_cast<const char*>(raw_.bytes), raw_.size}; }
  /// The bytes of the image, for cuLibraryLoadData or a file; valid as long as the Image.
  const std::byte* bytes() const noexcept { return static_cast<const std::byte*>(raw_.bytes); }
  std::size_t size() const noexcept { return raw_.size; }
  kiln_image* raw() noexcept { return &raw_; }

 private:
  kiln_image raw_{};
};

}  // namespace v1
}  // namespace kiln
