// A loaded kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kiln/detail.hpp"

namespace kiln {
inline namespace v1 {

/// How an image was obtained.
enum class Outcome : int {
  memory = KILN_OUTCOME_MEMORY,
  disk = KILN_OUTCOME_DISK,
  layer = KILN_OUTCOME_LAYER,
  remote = KILN_OUTCOME_REMOTE,
  compiled = KILN_OUTCOME_COMPILED,
  waited = KILN_OUTCOME_WAITED,
};

/// Geometry of a raw launch, in CUDA's terms.
struct LaunchConfig : kiln_launch_config {
  LaunchConfig() : kiln_launch_config{} {
    struct_size = sizeof(kiln_launch_config);
    for (int i = 0; i < 3; ++i) grid[i] = block[i] = 1;
  }
};

/// Where a variable of an image lies, and how many bytes it has.
struct Global {
  DevicePtr address;
  std::size_t bytes;
};

/// A view of a kernel that its Service owns: copy it freely, do not use it after the Service (or its context)
/// is gone. Thread-safe.
class Kernel {
 public:
  Kernel() = default;
  explicit Kernel(const kiln_kernel* handle) noexcept : handle_(handle) {}

  /// Launches with the manifest's geometry; arguments in manifest order, trailing optional ones may be left
  /// out. Pointers are device pointers (or a DevicePtr); integers, enums and floats are converted to the
  /// declared type when the value fits; structs and tensor maps are taken by their bytes, at any alignment.
  /// Errors: wrong count, kind or size and numbers that do not fit (invalid_argument), an unaligned pointer,
  /// a broken [[require]] or an impossible geometry (requirement), all before anything is launched; the
  /// driver's refusal, which says what to do (driver). The kernel's context must be current. Allocates
  /// nothing once these types were seen.
  template <class... Args>
  void operator()(CUstream stream, const Args&... args) const {
    const void* data[sizeof...(Args) + 1] = {static_cast<const void*>(std::addressof(args))..., nullptr};
    detail::check(
        kiln_kernel_launch(handle_, stream, detail::ArgTypes<Args...>::value, data, sizeof...(Args)));
  }
  /// Geometry and parameter pointers as cuLaunchKernelEx takes them; nothing is checked.
  void launch(const LaunchConfig& config, void** parameters) const {
    detail::check(kiln_kernel_launch_raw(handle_, &config, parameters));
  }

  /// Another [[kernel]] of the manifest: an entry point of the same image, which shares its variables. A view
  /// that lives as long as this one. Throws Error(invalid_argument).
  Kernel entry(const char* name) const {
    const kiln_kernel* out = nullptr;
    detail::check(kiln_kernel_entry(handle_, name, &out));
    return Kernel(out);
  }
  /// A [[global]] of the manifest: a __device__ or __constant__ variable in the kernel's context. Throws
  /// Error(invalid_argument).
  Global global(const char* name) const {
    kiln_global out{};
    out.struct_size = sizeof out;
    detail::check(kiln_kernel_global(handle_, name, &out));
    return {DevicePtr(out.address), static_cast<std::size_t>(out.bytes)};
  }
  /// An [export] of the manifest: an integer constant of the source, such as the size of a struct. Throws
  /// Error(invalid_argument).
  std::int64_t constant(const char* name) const {
    std::int64_t out = 0;
    detail::check(kiln_kernel_constant(handle_, name, &out));
    return out;
  }

  CUfunction function() const noexcept { return kiln_kernel_function(handle_); }
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

/// The bytes of an image, without a GPU. Move-only owner.
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
  kiln_image* raw() noexcept { return &raw_; }

 private:
  kiln_image raw_{};
};

}  // namespace v1
}  // namespace kiln
