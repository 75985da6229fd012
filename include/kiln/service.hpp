// The service: configuration, cache, compiler and the templates opened from it.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "kiln/kernel.hpp"
#include "kiln/options.hpp"

namespace kiln {
inline namespace v1 {

/// Counters since the service was made; see kiln_stats in kiln.h.
using Stats = kiln_stats;

/// Where a template's kernels will run.
struct Device {
  int ordinal = KILN_DEVICE_CURRENT;
  std::string arch;  ///< only without a GPU

  /// The calling thread's current context.
  static Device current() { return {}; }
  /// Compile only, for machines without a GPU; empty: the configured arch, else sm_90a.
  static Device none(std::string arch = {}) { return {KILN_DEVICE_NONE, std::move(arch)}; }
};

struct GetOptions {
  double deadline_s = 0;  ///< 0: the compile deadline
};

/// A template bound to a device, a context and an arch. A view owned by its Service; copy it freely.
/// Thread-safe.
class KernelTemplate {
 public:
  explicit KernelTemplate(kiln_template* handle) noexcept : handle_(handle) {}

  /// The kernel for these parameters, in manifest order: get(kiln::Dtype::bf16, 4096). On a ready kernel: no
  /// lock, no allocation, no system call, no driver call. Otherwise looks on disk, compiles, publishes and
  /// loads (DESIGN: the one path). Throws Error and CompileError.
  template <class... Args>
  Kernel get(const Args&... args) const {
    const kiln_value values[sizeof...(Args) + 1] = {detail::to_c(Value(args))..., {}};
    return get_values(nullptr, values, sizeof...(Args), nullptr);
  }
  /// get({{"T", kiln::Dtype::bf16}, {"H", 4096}}); parameters that are not named take their defaults.
  Kernel get(std::initializer_list<NamedValue> named) const {
    const Named n(named);
    return get_values(n.names.data(), n.values.data(), n.values.size(), nullptr);
  }
  Kernel get(std::initializer_list<NamedValue> named, const GetOptions& options) const {
    const Named n(named);
    kiln_get get{sizeof(kiln_get), options.deadline_s, nullptr, 0};
    return get_values(n.names.data(), n.values.data(), n.values.size(), &get);
  }
  /// For use near stream capture: a kernel that is not ready is refused (Errc::not_ready) while `stream`
  /// captures.
  template <class... Args>
  Kernel get(CUstream stream, const Args&... args) const {
    const kiln_value values[sizeof...(Args) + 1] = {detail::to_c(Value(args))..., {}};
    const kiln_get get{sizeof(kiln_get), 0, stream, 1};
    return get_values(nullptr, values, sizeof...(Args), &get);
  }
  /// The ready kernel, or a false one. Memory only.
  template <class... Args>
  Kernel try_get(const Args&... args) const noexcept {
    const kiln_value values[sizeof...(Args) + 1] = {detail::to_c(Value(args))..., {}};
    return Kernel(kiln_template_try_get(handle_, values, sizeof...(Args)));
  }
  /// The image only; needs no GPU.
  template <class... Args>
  Image compile(const Args&... args) const {
    const kiln_value values[sizeof...(Args) + 1] = {detail::to_c(Value(args))..., {}};
    Image image;
    detail::check(kiln_template_compile(handle_, nullptr, values, sizeof...(Args), image.raw()));
    return image;
  }
  Image compile(std::initializer_list<NamedValue> named) const {
    const Named n(named);
    Image image;
    detail::check(
        kiln_template_compile(handle_, n.names.data(), n.values.data(), n.values.size(), image.raw()));
    return image;
  }

 private:
  struct Named {
    std::vector<std::string> texts;
    std::vector<const char*> names;
    std::vector<kiln_value> values;
    explicit Named(std::initializer_list<NamedValue> in) {
      texts.reserve(in.size());
      for (const NamedValue& v : in) {
        texts.emplace_back(v.name);
        names.push_back(texts.back().c_str());
        values.push_back(detail::to_c(v.value));
      }
    }
  };
  Kernel get_values(const char* const* names, const kiln_value* values, std::size_t count,
                    const kiln_get* get) const {
    const kiln_kernel* out = nullptr;
    detail::check(kiln_template_get(handle_, names, values, count, get, &out));
    return Kernel(out);
  }

  kiln_template* handle_;
};

/// One per process is usual; several may share a cache directory. Thread-safe. Destruction unloads its
/// kernels.
class Service {
 public:
  /// KILN_* and defaults; touches no GPU and starts no process.
  Service() : Service(Options{}) {}
  explicit Service(const Options& o) {
    kiln_options c{};
    c.struct_size = sizeof c;
    c.hermetic = o.ignore_environment;
    c.mode = static_cast<int>(o.mode);
    const auto text = [](const std::string& s) { return s.empty() ? nullptr : s.c_str(); };
    c.cache_dir = text(o.cache_dir);
    c.template_path = text(o.template_path);
    c.include_path = text(o.include_path);
    c.cuda_home = text(o.cuda_home);
    c.toolchain = text(o.toolchain);
    c.arch = text(o.arch);
    c.worker = text(o.worker);
    c.jobs = o.jobs;
    c.compile_deadline_s = o.compile_deadline_s;
    c.cache_layers = text(o.cache_layers);
    c.cache_max_size = text(o.cache_max_size);
    c.record = text(o.record);
    c.compile_memory = text(o.compile_memory);
    kiln_service* handle = nullptr;
    detail::check(kiln_service_create(&c, &handle));
    handle_.reset(handle);
  }

  /// Parses the manifest once and binds to the device's context. Throws Error(unknown_template | manifest |
  /// no_driver).
  KernelTemplate open(const std::string& name, const Device& device = Device::current()) {
    kiln_template* out = nullptr;
    detail::check(kiln_service_open(handle_.get(), name.c_str(), device.ordinal,
                                    device.arch.empty() ? nullptr : device.arch.c_str(), &out));
    return KernelTemplate(out);
  }
  /// Registers a template from memory.
  void add_template(const std::string& manifest, const std::string& source,
                    const std::string& reference = {}) {
    detail::check(kiln_service_add_template(handle_.get(), manifest.c_str(), source.c_str(),
                                            reference.empty() ? nullptr : reference.c_str()));
  }
  /// From here on (in mode sealed) only kernels in memory are returned.
  void seal() { detail::check(kiln_service_seal(handle_.get())); }
  Stats stats() const {
    Stats out{};
    out.struct_size = sizeof out;
    detail::check(kiln_service_stats(handle_.get(), &out));
    return out;
  }
  kiln_service* handle() const noexcept { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(kiln_service* service) const noexcept { kiln_service_destroy(service); }
  };
  std::unique_ptr<kiln_service, Destroy> handle_;
};

}  // namespace v1
}  // namespace kiln
