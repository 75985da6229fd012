// The C ABI over the runtime: handles in, statuses out; no exception passes.
#include "kiln/kiln.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>

#include "kiln/error.hpp"
#include "runtime/service.hpp"

using namespace kiln;

namespace {

using runtime::KernelTemplate;
using runtime::LoadedKernel;
using runtime::Service;

struct LastError {
  std::string message, specialization, options, log;
  kiln_error view{sizeof(kiln_error), 0, "", "", "", ""};
};
thread_local LastError t_error;

kiln_status fail(Errc code, const char* message, const CompileError* compile = nullptr) noexcept {
  LastError& e = t_error;
  try {
    e.message = message;
    e.specialization = compile ? compile->specialization() : "";
    e.options = compile ? compile->options() : "";
    e.log = compile ? compile->log() : "";
    e.view = {sizeof(kiln_error), static_cast<kiln_status>(code),
              e.message.c_str(),  e.specialization.c_str(),
              e.options.c_str(),  e.log.c_str()};
  } catch (...) {
    e.view = {sizeof(kiln_error),
              static_cast<kiln_status>(code),
              "out of memory while reporting an error",
              "",
              "",
              ""};
  }
  return e.view.status;
}

template <class Body>
kiln_status guarded(Body&& body) noexcept {
  try {
    body();
    return KILN_OK;
  } catch (const CompileError& error) {
    return fail(error.code(), error.what(), &error);
  } catch (const Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(Errc::internal, "out of memory");
  } catch (const std::exception& error) {
    return fail(Errc::internal, error.what());
  } catch (...) {
    return fail(Errc::internal, "unknown exception");
  }
}

void require(bool condition, const char* what) {
  if (!condition) throw Error(Errc::invalid_argument, what);
}

/// A caller's struct of an older or newer size, in ours: what it lacks is zero.
template <class T>
T sized(const T* in) {
  T out{};
  if (in) {
    require(in->struct_size >= sizeof(std::size_t), "struct_size is not set");
    std::memcpy(&out, in, std::min(in->struct_size, sizeof out));
  }
  out.struct_size = sizeof out;
  return out;
}

template <class T>
void fill_sized(T* out, T value) {
  require(out && out->struct_size >= sizeof(std::size_t), "struct_size is not set");
  const std::size_t size = std::min(out->struct_size, sizeof value);
  value.struct_size = out->struct_size;
  std::memcpy(out, &value, size);
}

Service& of(kiln_service* service) {
  require(service != nullptr, "kiln_service is null");
  return *reinterpret_cast<Service*>(service);
}
KernelTemplate& of(kiln_template* t) {
  require(t != nullptr, "kiln_template is null");
  return *reinterpret_cast<KernelTemplate*>(t);
}
const LoadedKernel& of(const kiln_kernel* kernel) {
  require(kernel != nullptr, "kiln_kernel is null");
  return *reinterpret_cast<const LoadedKernel*>(kernel);
}

Value to_value(const kiln_value& v) noexcept {
  Value out;
  out.kind = static_cast<Value::Kind>(v.kind);
  out.integer = v.integer;
  if (v.kind == KILN_VALUE_TEXT && v.text && v.text_size > 0)
    out.text = {v.text, static_cast<std::size_t>(v.text_size)};
  return out;
}

/// Values in manifest order, on the stack when they are given so.
class Values {
 public:
  Values(const KernelTemplate& t, const char* const* names, const kiln_value* values, std::size_t count) {
    require(count == 0 || values != nullptr, "values is null");
    if (!names) {
      if (count > source::kMaxParameters) {
        throw Error(Errc::invalid_argument, "template '" + t.origin().manifest.name + "' was given " +
                                                std::to_string(count) + " parameters");
      }
      for (std::size_t i = 0; i < count; ++i) fixed_[i] = to_value(values[i]);
      span_ = {fixed_, count};
      return;
    }
    std::vector<NamedValue> named;
    for (std::size_t i = 0; i < count; ++i) {
      require(names[i] != nullptr, "a parameter's name is null");
      named.push_back({names[i], to_value(values[i])});
    }
    ordered_ = source::positional(t.origin().manifest, named);
    span_ = ordered_;
  }
  std::span<const Value> span() const noexcept { return span_; }

 private:
  Value fixed_[source::kMaxParameters];
  std::vector<Value> ordered_;
  std::span<const Value> span_;
};

std::string text(const char* s) { return s ? s : ""; }

}  // namespace

extern "C" {

const kiln_error* kiln_last_error(void) { return &t_error.view; }

const char* kiln_version(void) { return KILN_VERSION; }

kiln_status kiln_service_create(const kiln_options* options, kiln_service** out) {
  return guarded([&] {
    require(out != nullptr, "out is null");
    const kiln_options in = sized(options);
    Options o;
    o.ignore_environment = in.hermetic != 0;
    require(in.mode >= KILN_MODE_DEFAULT && in.mode <= KILN_MODE_SEALED, "mode is none of KILN_MODE_*");
    o.mode = static_cast<Mode>(in.mode);
    o.cache_dir = text(in.cache_dir), o.template_path = text(in.template_path),
    o.include_path = text(in.include_path);
    o.cuda_home = text(in.cuda_home), o.toolchain = text(in.toolchain), o.arch = text(in.arch),
    o.worker = text(in.worker);
    o.jobs = in.jobs;
    o.compile_deadline_s = in.compile_deadline_s;
    o.cache_layers = text(in.cache_layers), o.cache_max_size = text(in.cache_max_size);
    o.record = text(in.record), o.compile_memory = text(in.compile_memory);
    *out = reinterpret_cast<kiln_service*>(new Service(o));
  });
}

void kiln_service_destroy(kiln_service* service) { delete reinterpret_cast<Service*>(service); }

kiln_status kiln_service_add_template(kiln_service* service, const char* manifest, const char* source,
                                      const char* reference) {
  return guarded([&] {
    require(manifest && source, "manifest and source must not be null");
    of(service).add({manifest, source, text(reference)});
  });
}

kiln_status kiln_service_seal(kiln_service* service) {
  return guarded([&] { of(service).seal(); });
}

kiln_status kiln_service_open(kiln_service* service, const char* name, int32_t device, const char* arch,
                              kiln_template** out) {
  return guarded([&] {
    require(name && out, "name and out must not be null");
    *out = reinterpret_cast<kiln_template*>(&of(service).open(name, device, text(arch)));
  });
}

kiln_status kiln_service_stats(kiln_service* service, kiln_stats* out) {
  return guarded([&] {
    kiln_stats stats{};
    of(service).pipeline().counters().read(stats);
    fill_sized(out, stats);
  });
}

kiln_status kiln_template_get(kiln_template* t, const char* const* names, const kiln_value* values,
                              size_t count, const kiln_get* get, const kiln_kernel** out) {
  return guarded([&] {
    require(out != nullptr, "out is null");
    const Values in(of(t), names, values, count);
    runtime::GetRequest request;
    if (get) {
      const kiln_get options = sized(get);
      if (options.deadline_s > 0) {
        request.deadline = base::Deadline::after(std::chrono::duration_cast<base::Clock::duration>(
            std::chrono::duration<double>(std::min(options.deadline_s, 1e9))));
      }
      if (options.has_stream) request.stream = options.stream;
    }
    *out = reinterpret_cast<const kiln_kernel*>(&of(t).get(in.span(), request));
  });
}

const kiln_kernel* kiln_template_try_get(kiln_template* t, const kiln_value* values, size_t count) {
  if (!t || count > source::kMaxParameters || (count > 0 && !values)) return nullptr;
  Value in[source::kMaxParameters];
  for (std::size_t i = 0; i < count; ++i) in[i] = to_value(values[i]);
  return reinterpret_cast<const kiln_kernel*>(
      reinterpret_cast<const KernelTemplate*>(t)->try_get({in, count}));
}

kiln_status kiln_template_compile(kiln_template* t, const char* const* names, const kiln_value* values,
                                  size_t count, kiln_image* out) {
  return guarded([&] {
    require(out != nullptr, "out is null");
    const Values in(of(t), names, values, count);
    struct Owner {
      runtime::Obtained obtained;
      std::string specialization;
    };
    auto owner = std::make_unique<Owner>(Owner{of(t).compile(in.span()), {}});
    const runtime::StoredImage& image = *owner->obtained.image;
    owner->specialization = image.facts.specialization().to_string();
    kiln_image result{};
    result.outcome = static_cast<int32_t>(owner->obtained.outcome);
    std::snprintf(result.key, sizeof result.key, "%s", image.key.hex().c_str());
    std::snprintf(result.arch, sizeof result.arch, "%s", image.facts.arch.c_str());
    result.bytes = image.bytes.data();
    result.size = image.bytes.size();
    result.lowered_name = image.facts.lowered_name.c_str();
    result.specialization = owner->specialization.c_str();
    result.owner = new std::shared_ptr<void>(std::shared_ptr<Owner>(std::move(owner)));
    fill_sized(out, result);
  });
}

void kiln_image_release(kiln_image* image) {
  if (!image || !image->owner) return;
  delete static_cast<std::shared_ptr<void>*>(image->owner);
  image->owner = nullptr;
}

kiln_status kiln_kernel_get_info(const kiln_kernel* kernel, kiln_kernel_info* out) {
  return guarded([&] {
    const LoadedKernel& k = of(kernel);
    const compile::Facts& facts = k.image().facts;
    kiln_kernel_info info{};
    info.outcome = static_cast<int32_t>(k.outcome());
    std::snprintf(info.key, sizeof info.key, "%s", k.image().key.hex().c_str());
    info.registers = facts.registers;
    info.spill_bytes = facts.spill_store_bytes + facts.spill_load_bytes;
    info.shared_bytes = facts.shared_bytes;
    info.max_threads = facts.max_threads;
    info.argument_count = static_cast<uint32_t>(facts.arguments.size());
    info.specialization = k.specialization().c_str();
    info.lowered_name = facts.lowered_name.c_str();
    fill_sized(out, info);
  });
}

CUfunction kiln_kernel_function(const kiln_kernel* kernel) {
  return kernel ? reinterpret_cast<const LoadedKernel*>(kernel)->function() : nullptr;
}

kiln_status kiln_kernel_launch(const kiln_kernel* kernel, CUstream stream, const kiln_arg_type* types,
                               const void* const* data, size_t count) {
  return guarded([&] {
    require(count == 0 || (types && data), "types and data must not be null");
    of(kernel).launch(stream, types, data, count);
  });
}

kiln_status kiln_kernel_launch_raw(const kiln_kernel* kernel, const kiln_launch_config* config,
                                   void** parameters) {
  return guarded([&] {
    require(config != nullptr, "config is null");
    of(kernel).launch_raw(sized(config), parameters);
  });
}

}  // extern "C"
