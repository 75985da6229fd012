// A template that is bound to a device, and gives kernels for parameters.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "kiln/family.hpp"

namespace kiln {
inline namespace v1 {

/// The place where a template's kernels run.
struct Device {
  int ordinal = KILN_DEVICE_CURRENT;
  std::string arch;  ///< counts only for none()

  /// The calling thread's current context, and its device.
  static Device current() { return {}; }
  /// No device: the template can only compile. Empty: the configured arch, or else sm_90a.
  static Device none(std::string arch = {}) { return {KILN_DEVICE_NONE, std::move(arch)}; }
};

/// How long a get may wait, and whether a stream capture forbids to wait.
struct GetOptions : kiln_get {
  GetOptions() noexcept : kiln_get{sizeof(kiln_get), 0, nullptr, 0} {}
  /// Waits at most `seconds` from now for a kernel that is not ready. 0: no limit. Negative: it has passed.
  /// A compile goes on after the deadline of its callers.
  explicit GetOptions(double seconds) noexcept : GetOptions() { deadline_s = seconds; }
  /// A kernel that is not ready is refused (Errc::not_ready) while `stream` captures.
  static GetOptions near(CUstream stream) noexcept {
    GetOptions options;
    options.stream = stream, options.has_stream = 1;
    return options;
  }
};

/// A kernel that is being made ready. Move-only. Thread-safe, except for moves.
/// Work that has begun goes on when the Future is destroyed.
class Future {
 public:
  explicit Future(kiln_future* handle) noexcept : handle_(handle) {}

  /// Waits for the kernel. Throws the error when there is no kernel. May be called again.
  Kernel get() const {
    const kiln_kernel* out = nullptr;
    detail::check(kiln_future_wait(handle_.get(), -1, &out));
    return Kernel(out);
  }
  /// Waits at most `seconds`. Returns true when get() would not wait.
  bool wait_for(double seconds) const {
    const kiln_kernel* out = nullptr;
    const kiln_status status = kiln_future_wait(handle_.get(), seconds, &out);
    return status != static_cast<kiln_status>(Errc::deadline) || ended();
  }
  /// True when get() would not wait.
  bool ready() const { return wait_for(0); }

 private:
  /// Errc::deadline may come from this wait or from the work itself. Only the work ends the future.
  bool ended() const {
    int32_t done = 0;
    detail::check(kiln_future_done(handle_.get(), &done));
    return done != 0;
  }
  std::unique_ptr<kiln_future, detail::Release<kiln_future, kiln_future_destroy>> handle_;
};

/// A template that is bound to a device, a context and an arch. Thread-safe.
///
/// It is a view that a Service or Scope owns. Copies are cheap.
/// Each call takes parameters in the manifest's order, get(kiln::Dtype::bf16, 4096), or by name,
/// get({{"T", kiln::Dtype::bf16}, {"H", 4096}}). Parameters that are not given take their defaults.
class KernelTemplate {
 public:
  explicit KernelTemplate(kiln_template* handle) noexcept : handle_(handle) {}

  /// Returns the kernel for these parameters, and makes it ready when it is not.
  ///
  /// For a ready kernel this takes no lock, allocates nothing, and makes no system call and no driver call.
  /// Otherwise the kernel comes from disk, from the fleet's tier or from the compiler (docs/architecture.md).
  /// Callers that want the same kernel wait for one compile, each until its own deadline, and get the same
  /// error. Throws Error and CompileError.
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
  /// Refuses a kernel that is not ready (Errc::not_ready) while `stream` captures.
  template <class... Args>
  Kernel get(CUstream stream, const Args&... args) const {
    const GetOptions options = GetOptions::near(stream);
    return got(detail::Positional<Args...>(args...), &options);
  }

  /// Returns one handle over all members of the template's [family], and makes them ready (kiln_template_get_family in
  /// kiln.h). The family's parameter is left out: by position it comes last, or is kiln::Value(). Each launch picks it.
  /// Throws Error(not_ready) that names every member which a seal or a capture refuses.
  template <class... Args>
  Family get_family(const Args&... args) const {
    return family(detail::Positional<Args...>(args...), nullptr);
  }
  Family get_family(std::initializer_list<NamedValue> named) const {
    return family(detail::Named(named), nullptr);
  }
  template <class... Args>
  Family get_family(const GetOptions& options, const Args&... args) const {
    return family(detail::Positional<Args...>(args...), &options);
  }
  Family get_family(std::initializer_list<NamedValue> named, const GetOptions& options) const {
    return family(detail::Named(named), &options);
  }

  /// Returns the kernel if it is ready, and an empty one otherwise. Looks only into memory.
  template <class... Args>
  Kernel try_get(const Args&... args) const noexcept {
    const detail::Positional<Args...> p(args...);
    return Kernel(kiln_template_try_get(handle_, p.values, p.count));
  }

  /// Makes the kernel ready on one of kiln's threads, with the template's context.
  /// Errors of values, mode and seal are thrown here. The future throws all others.
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

  /// Begins to make the kernel ready, after all kernels that callers wait for. Returns at once.
  /// A template without a device gets only the image.
  template <class... Args>
  void prefetch(const Args&... args) const {
    const detail::Positional<Args...> p(args...);
    detail::check(kiln_template_prefetch(handle_, p.names, p.values, p.count));
  }
  void prefetch(std::initializer_list<NamedValue> named) const {
    const detail::Named p(named);
    detail::check(kiln_template_prefetch(handle_, p.names, p.values, p.count));
  }

  /// Returns the specialised kernel if it is ready or on disk, and the fallback template's kernel otherwise.
  /// Both take the same arguments. The specialised kernel is then compiled in the background, and
  /// Service::adopt() replaces the fallback with it. Throws Error(invalid_argument) without a fallback.
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

  /// Gets only the image. Needs no GPU.
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
  Family family(const Parameters& p, const kiln_get* get) const {
    const kiln_family* out = nullptr;
    detail::check(kiln_template_get_family(handle_, p.names, p.values, p.count, get, &out));
    return Family(out);
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

/// While a CaptureScope lives, its thread's misses are refused (Errc::not_ready) before any driver call.
class CaptureScope {
 public:
  CaptureScope() noexcept { kiln_capture_begin(); }
  ~CaptureScope() { kiln_capture_end(); }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;
};

}  // namespace v1
}  // namespace kiln
