// The service: configuration, cache, compiler and the templates opened from it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kiln/blobs.hpp"
#include "kiln/kernel_template.hpp"
#include "kiln/operator.hpp"
#include "kiln/options.hpp"
#include "kiln/scope.hpp"

namespace kiln {
inline namespace v1 {

/// Counters since the service was created (kiln_stats in kiln.h).
using Stats = kiln_stats;

/// Seals every Service of this process, now and in future (kiln_process_seal in kiln.h).
inline void process_seal() { detail::check(kiln_process_seal()); }

/// Launches of one kernel that could not do their work (kiln_device_fault in kiln.h).
struct DeviceFault {
  std::string template_name, specialization, reason;
  std::int32_t code = 0, device = 0;
  std::uint32_t launches = 0;
};

/// Opens templates and owns their kernels. Thread-safe. Move-only.
///
/// One Service for each process is usual. Several may share a cache directory.
/// The destructor unloads the kernels. Scopes, Futures and Preparations must be destroyed before it.
class Service {
 public:
  /// Configured by KILN_*, the configuration file and defaults. Touches no GPU and starts no process.
  Service() : Service(Options{}) {}
  /// Throws Error(invalid_argument) for a setting that is not allowed.
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
    c.adopt = static_cast<int>(o.adopt);
    c.remote = text(o.remote);
    c.remote_mode = text(o.remote_mode);
    c.remote_key = text(o.remote_key);
    c.remote_sign = text(o.remote_sign);
    c.remote_budget_s = o.remote_budget_s;
    c.remote_sealed = text(o.remote_sealed);
    if (o.on_event) {
      on_event_ = std::make_unique<std::function<void(const Event&)>>(o.on_event);
      c.on_event = tell;
      c.event_user = on_event_.get();
    }
    kiln_service* handle = nullptr;
    detail::check(kiln_service_create(&c, &handle));
    handle_.reset(handle);
  }

  Service(Service&&) = default;
  /// The old handle is destroyed before the function that its events are sent to.
  Service& operator=(Service&& other) noexcept {
    handle_ = std::move(other.handle_);
    on_event_ = std::move(other.on_event_);
    return *this;
  }

  /// Parses the manifest and binds the template to the device's context. Repeated calls are cheap.
  /// Throws Error(unknown_template, manifest, no_driver, unsupported_arch).
  KernelTemplate open(const std::string& name, const Device& device = Device::current()) {
    kiln_template* out = nullptr;
    detail::check(kiln_service_open(handle_.get(), name.c_str(), device.ordinal,
                                    device.arch.empty() ? nullptr : device.arch.c_str(), &out));
    return KernelTemplate(out);
  }
  /// Opens an operator by its name, or by "TEMPLATE.NAME" where two templates have one of that name.
  /// Repeated calls are cheap. Throws Error(unknown_template, manifest, no_driver, unsupported_arch).
  Operator operator_(const std::string& name, const Device& device = Device::current()) {
    kiln_operator* out = nullptr;
    detail::check(kiln_service_open_operator(handle_.get(), name.c_str(), device.ordinal,
                                             device.arch.empty() ? nullptr : device.arch.c_str(), &out));
    return Operator(out);
  }
  /// Describes one operator, or all of them for "": a JSON array (kiln_service_describe_operators in kiln.h).
  std::string describe_operators(const std::string& name = {}) const {
    return text_of([&](kiln_text* out) {
      return kiln_service_describe_operators(handle_.get(), name.empty() ? nullptr : name.c_str(), out);
    });
  }
  /// Opens a space of blobs (kiln_service_open_blobs in kiln.h). Touches no file. Throws Error(invalid_argument).
  /// The parameters are the fields of kiln_blobs_options.
  Blobs blobs(const std::string& space, const std::string& compatibility = {}, std::uint64_t budget_bytes = 0,
              bool refuse_when_sealed = false, bool behind = false) {
    if ((space + compatibility).find('\0') != std::string::npos)
      throw Error(Errc::invalid_argument, "space and compatibility of blobs must have no zero byte");
    const kiln_blobs_options options{sizeof options, space.c_str(),      compatibility.c_str(),
                                     budget_bytes,   refuse_when_sealed, behind};
    kiln_blobs* out = nullptr;
    detail::check(kiln_service_open_blobs(handle_.get(), &options, &out));
    return Blobs(out);
  }
  /// Registers a template from memory: manifest, source, and optionally the source of its reference.
  void add_template(const std::string& manifest, const std::string& source,
                    const std::string& reference = {}) {
    detail::check(kiln_service_add_template(handle_.get(), manifest.c_str(), source.c_str(),
                                            reference.empty() ? nullptr : reference.c_str()));
  }
  /// Registers templates from files: `path` is a directory of manifests, or the manifest NAME.toml of one
  /// template. Throws Error(io, manifest).
  void add_template(const std::string& path) {
    detail::check(kiln_service_add_template_path(handle_.get(), path.c_str()));
  }
  /// Creates an owner for kernels that are unloaded before the Service ends.
  Scope scope() {
    kiln_scope* out = nullptr;
    detail::check(kiln_scope_create(handle_.get(), &out));
    return Scope(out);
  }

  /// Makes the kernels of a plan ready, in parallel and in the background. Also works after the seal.
  /// `plan` is the text of a plan or of a trace (Options::record). The kernels belong to the Service.
  /// Throws Error for a plan that cannot be read, an unknown template or a value that is not allowed.
  Preparation prepare(const std::string& plan, const PrepareOptions& options = {}) {
    return prepare(nullptr, plan.c_str(), nullptr, options);
  }
  /// Does so for kernels that belong to `scope`.
  Preparation prepare(const Scope& scope, const std::string& plan, const PrepareOptions& options = {}) {
    return prepare(scope.handle(), plan.c_str(), nullptr, options);
  }
  /// Does so for the plan in `file`.
  Preparation prepare_file(const std::string& file, const PrepareOptions& options = {}) {
    return prepare(nullptr, nullptr, file.c_str(), options);
  }

  /// Seals this service: from here on only kernels in memory are returned (kiln_service_seal in kiln.h).
  /// A service in mode jit or warn goes on compiling.
  void seal() { detail::check(kiln_service_seal(handle_.get())); }
  /// A plan of the specialisations that were refused because of the seal. Empty: nothing was refused.
  std::string missing() const {
    return text_of([&](kiln_text* out) { return kiln_service_missing(handle_.get(), out); });
  }
  /// All that the fingerprint covers, as JSON (kiln_service_describe_fingerprint in kiln.h).
  std::string describe_fingerprint() const {
    return text_of([&](kiln_text* out) { return kiln_service_describe_fingerprint(handle_.get(), out); });
  }
  /// A digest of the loaded kernels and the used blobs, 32 hex digits. Two ranks that run the same code have the
  /// same digest.
  std::string fingerprint() const {
    char out[33];
    detail::check(kiln_service_fingerprint(handle_.get(), out));
    return out;
  }
  /// The kernels of which a launch could not do its work since the last call (kiln_service_device_faults in kiln.h).
  /// Throws Error(driver).
  std::vector<DeviceFault> device_faults() {
    std::vector<DeviceFault> out;
    const auto add = [](const kiln_device_fault* f, void* to) {
      static_cast<std::vector<DeviceFault>*>(to)->push_back(
          {f->template_name, f->specialization, f->reason, f->code, f->device, f->launches});
    };
    detail::check(kiln_service_device_faults(handle_.get(), add, &out));
    return out;
  }
  /// Lets get_or_fallback return the specialised kernels that have become ready. Returns how many there are.
  std::uint64_t adopt() {
    std::uint64_t adopted = 0;
    detail::check(kiln_service_adopt(handle_.get(), &adopted));
    return adopted;
  }
  Stats stats() const {
    Stats out{};
    out.struct_size = sizeof out;
    detail::check(kiln_service_stats(handle_.get(), &out));
    return out;
  }
  kiln_service* handle() const noexcept { return handle_.get(); }

 private:
  /// The text that `give(kiln_text*)` gives.
  template <class Give>
  static std::string text_of(const Give& give) {
    kiln_text text{};
    text.struct_size = sizeof text;
    detail::check(give(&text));
    std::string out(text.data, text.size);
    kiln_text_release(&text);
    return out;
  }
  Preparation prepare(kiln_scope* scope, const char* plan, const char* file, const PrepareOptions& options) {
    auto told = std::make_shared<std::function<void(const Progress&)>>(options.on_progress);
    kiln_prepare c{};
    c.struct_size = sizeof c;
    c.plan = plan, c.file = file;
    c.until = static_cast<int>(options.until);
    c.device = options.device.ordinal;
    c.arch = options.device.arch.empty() ? nullptr : options.device.arch.c_str();
    c.deadline_s = options.deadline_s;
    c.no_compile = !options.may_compile;
    if (*told) c.on_progress = tell_progress;
    c.user = told.get();
    kiln_preparation* out = nullptr;
    detail::check(kiln_service_prepare(handle_.get(), scope, &c, &out));
    return {out, std::move(told)};
  }
  static void tell(const kiln_event* e, void* user) noexcept {
    try {
      (*static_cast<std::function<void(const Event&)>*>(user))({static_cast<Event::Kind>(e->kind),
                                                                e->specialization, e->arch, e->message,
                                                                e->milliseconds, e->count, e->bytes});
    } catch (...) {
    }
  }
  static void tell_progress(const kiln_progress* progress, void* user) noexcept {
    try {
      const auto told =
          *static_cast<std::function<void(const Progress&)>*>(user);  // a copy: it may end its Preparation
      told(*progress);
    } catch (...) {
    }
  }

  std::unique_ptr<std::function<void(const Event&)>> on_event_;  // outlives the handle
  std::unique_ptr<kiln_service, detail::Release<kiln_service, kiln_service_destroy>> handle_;
};

}  // namespace v1
}  // namespace kiln
