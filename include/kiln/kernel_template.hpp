// A template, bound to where its kernels run: from parameters to kernels.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "kiln/kernel.hpp"

namespace kiln {
inline namespace v1 {

/// Where a template's kernels will run.
struct Device {
  int ordinal = KILN_DEVICE_CURRENT;
  std::string arch;  ///< only without a GPU

  /// The calling thread's current context.
  static Device current() { return {}; }
  /// Compile only, for machines without a GPU; empty: the configured arch, else sm_90a.
  static Device none(std::string arch = {}) { return {KILN_DEVICE_NONE, std::move(arch)}; }
};

/// How long and near what a get may wait.
struct GetOptions : kiln_get {
  GetOptions() noexcept : kiln_get{sizeof(kiln_get), 0, nullptr, 0} {}
  /// Seconds from now for a kernel that is not ready, 0: without limit, negative: has passed. What is under
  /// way goes on without the caller.
  explicit GetOptions(double seconds) noexcept : GetOptions() { deadline_s = seconds; }
  /// A kernel that is not ready is refused (Errc::not_ready) while `stream` captures.
  static GetOptions near(CUstream stream) noexcept {
    GetOptions options;
    options.stream = stream, options.has_stream = 1;
    return options;
  }
};

/// A kernel that is being made ready. Move-only; destroying it leaves what is under way to others.
/// Thread-safe but for moving.
class Future {
 public:
  explicit Future(kiln_future* handle) noexcept : handle_(handle) {}

  /// Waits for the kernel, or throws what its making failed with; callable again.
  Kernel get() const {
    const kiln_kernel* out = nullptr;
    detail::check(kiln_future_wait(handle_.get(), -1, &out));
    return Kernel(out);
  }
  /// True when get() would not wait.
  bool wait_for(double seconds) const {
    const kiln_kernel* out = nullptr;
    const kiln_status status = kiln_future_wait(handle_.get(), seconds, &out);
    return status != static_cast<kiln_status>(Errc::deadline) || ended();
  }
  bool ready() const { return wait_for(0); }

 private:
  /// The making itself may have ended at a deadline.
  bool ended() const {
    int32_t done = 0;
    detail::check(kiln_future_done(handle_.get(), &done));
    return done != 0;
  }
  std::unique_ptr<kiln_future, detail::Release<kiln_future, kiln_future_destroy>> handle_;
};

/// A template bound to a device, a context and an arch. A view owned by its Service or Scope; copy it freely.
/// Thread-safe. Each call takes parameters in manifest order, get(kiln::Dtype::bf16, 4096), or by name,
/// get({{"T", kiln::Dtype::bf16}, {"H", 4096}}); those that are not given take their defaults.
class KernelTemplate {
 public:
  explicit KernelTemplate(kiln_template* handle) noexcept : handle_(handle) {}

  /// The kernel for these parameters. On a ready kernel: no lock, no allocation, no system call, no driver
  /// call. Otherwise looks on disk, compiles, publishes and loads (DESIGN: the one path); callers of one
  /// kernel wait together, each with his own deadline, and get the same error. Throws Error and CompileError.
  template <class... Args>
  Kernel get(const Args&... args) const {
    return got(detail::Positional<Args...>(args...), nullptr);
  }
  Kernel get(std::initializer_list<NamedValue> named) const { return got(detail::Named(named), nullptr); }
  template <class... Args>
  Kernel get(const GetOptions& options, const Args&... args) const {
    return got(detail::Positional<Args...>(args...), &options);
  }
  Kernel get(std::initializer_list<NamedValue> named, const GetOptions& options) const {
    return got(detail::Named(named), &options);
  }
  /// For use near stream capture: a kernel that is not ready is refused (Errc::not_ready) while `stream`
  /// captures.
  template <class... Args>
  Kernel get(CUstream stream, const Args&... args) const {
    const GetOptions options = GetOptions::near(stream);
    return got(detail::Positional<Args...>(args...), &options);
  }

  /// The ready kernel, or a false one. Memory only.
  template <class... Args>
  Kernel try_get(const Args&... args) const noexcept {
    const detail::Positional<Args...> p(args...);
    return Kernel(kiln_template_try_get(handle_, p.values, p.count));
  }

  /// On a thread of kiln's own, with the template's context. Errors of values, mode and seal are thrown here.
  template <class... Args>
  Future get_async(const Args&... args) const {
    return begun(detail::Positional<Args...>(args...), nullptr);
  }
  template <class... Args>
  Future get_async(const GetOptions& options, const Args&... args) const {
    return begun(detail::Positional<Args...>(args...), &options);
  }
  Future get_async(std::initializer_list<NamedValue> named, const GetOptions& options = {}) const {
    return begun(detail::Named(named), &options);
  }

  /// Fire and forget, behind whatever somebody waits for. Without a device: the image only.
  template <class... Args>
  void prefetch(const Args&... args) const {
    const detail::Positional<Args...> p(args...);
    detail::check(kiln_template_prefetch(handle_, p.names, p.values, p.count));
  }
  void prefetch(std::initializer_list<NamedValue> named) const {
    const detail::Named p(named);
    detail::check(kiln_template_prefetch(handle_, p.names, p.values, p.count));
  }

  /// The specialised kernel if it is ready or on disk, else at once that of the manifest's fallback template,
  /// while the specialised one compiles behind; Service::adopt() takes it over. Takes the same arguments.
  template <class... Args>
  Kernel get_or_fallback(const Args&... args) const {
    return either(detail::Positional<Args...>(args...), nullptr);
  }
  Kernel get_or_fallback(std::initializer_list<NamedValue> named) const {
    return either(detail::Named(named), nullptr);
  }
  template <class... Args>
  Kernel get_or_fallback(const GetOptions& options, const Args&... args) const {
    return either(detail::Positional<Args...>(args...), &options);
  }
  template <class... Args>
  Kernel get_or_fallback(CUstream stream, const Args&... args) const {
    const GetOptions options = GetOptions::near(stream);
    return either(detail::Positional<Args...>(args...), &options);
  }

  /// The image only; needs no GPU.
  template <class... Args>
  Image compile(const Args&... args) const {
    return compiled(detail::Positional<Args...>(args...));
  }
  Image compile(std::initializer_list<NamedValue> named) const { return compiled(detail::Named(named)); }
  kiln_template* handle() const noexcept { return handle_; }

 private:
  template <class Parameters>
  Kernel got(const Parameters& p, const kiln_get* get) const {
    const kiln_kernel* out = nullptr;
    detail::check(kiln_template_get(handle_, p.names, p.values, p.count, get, &out));
    return Kernel(out);
  }
  template <class Parameters>
  Kernel either(const Parameters& p, const kiln_get* get) const {
    const kiln_kernel* out = nullptr;
    detail::check(kiln_template_get_or_fallback(handle_, p.names, p.values, p.count, get, &out));
    return Kernel(out);
  }
  template <class Parameters>
  Future begun(const Parameters& p, const kiln_get* get) const {
    kiln_future* out = nullptr;
    detail::check(kiln_template_get_async(handle_, p.names, p.values, p.count, get, &out));
    return Future(out);
  }
  template <class Parameters>
  Image compiled(const Parameters& p) const {
    Image image;
    detail::check(kiln_template_compile(handle_, p.names, p.values, p.count, image.raw()));
    return image;
  }

  kiln_template* handle_;
};

/// While it lives, this thread's misses are refused (Errc::not_ready) before any driver call.
class CaptureScope {
 public:
  CaptureScope() noexcept { kiln_capture_begin(); }
  ~CaptureScope() { kiln_capture_end(); }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;
};

}  // namespace v1
}  // namespace kiln
