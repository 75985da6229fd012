// The C ABI over templates and kernels. A ready kernel is answered before anything that could throw.
#include <memory>

#include "runtime/abi/common.hpp"
#include "runtime/state/capture_guard.hpp"

using namespace kiln;
using namespace kiln::runtime;
using namespace kiln::runtime::c_api;

namespace {

Value to_value(const kiln_value& v) noexcept {
  Value out;
  out.kind = static_cast<Value::Kind>(v.kind);
  out.integer = v.integer;
  if (v.kind == KILN_VALUE_TEXT && v.text && v.text_size > 0)
    out.text = {v.text, static_cast<std::size_t>(v.text_size)};
  return out;
}

/// Values in manifest order.
std::vector<Value> values_of(const KernelTemplate& t, const char* const* names, const kiln_value* values,
                             std::size_t count) {
  require(count == 0 || values != nullptr, "values is null");
  if (count > source::kMaxParameters) {
    throw Error(Errc::invalid_argument, "template '" + t.origin().manifest.name + "' was given " +
                                            std::to_string(count) + " parameters");
  }
  std::vector<Value> in_order;
  std::vector<NamedValue> named;
  for (std::size_t i = 0; i < count; ++i) {
    if (!names) {
      in_order.push_back(to_value(values[i]));
      continue;
    }
    require(names[i] != nullptr, "a parameter's name is null");
    named.push_back({names[i], to_value(values[i])});
  }
  return names ? source::positional(t.origin().manifest, named) : in_order;
}

/// Throws in a forked child, because a thread of the parent makes the kernel.
void refuse_in_child(const kiln_future& future) {
  if (future.generation != base::process_generation())
    throw Error(Errc::not_ready,
                "the parent of this forked process makes the kernel, and this process cannot wait for it");
}

GetRequest request_of(const kiln_get* get) {
  GetRequest out;
  if (!get) return out;
  const kiln_get options = sized(get);
  out.deadline = deadline_in(options.deadline_s);
  if (options.has_stream) out.stream = options.stream;
  return out;
}

/// The work that a plain hit does not need. It is a function of its own, so that a hit saves no
/// registers for it.
template <auto lookup, auto get>
[[gnu::noinline]] kiln_status slowly(kiln_template* t, const char* const* names, const kiln_value* values,
                                     std::size_t count, const kiln_get* options, const kiln_kernel** out) {
  return guarded([&] {
    require(out != nullptr, "out is null");
    KernelTemplate& opened = of(t);
    const LoadedKernel* found = (opened.*lookup)().find(names, values, count);
    if (!found) found = &(opened.*get)(values_of(opened, names, values, count), request_of(options));
    *out = handle_of(*found);
  });
}

}  // namespace

extern "C" {

kiln_status kiln_template_get(kiln_template* t, const char* const* names, const kiln_value* values,
                              size_t count, const kiln_get* get, const kiln_kernel** out) {
  if (t && out) [[likely]] {
    if (const LoadedKernel* ready =
            reinterpret_cast<KernelTemplate*>(t)->ready().find_plain(names, values, count)) [[likely]] {
      *out = handle_of(*ready);
      return KILN_OK;
    }
  }
  return slowly<&KernelTemplate::ready, &KernelTemplate::get>(t, names, values, count, get, out);
}

const kiln_kernel* kiln_template_try_get(kiln_template* t, const kiln_value* values, size_t count) {
  if (!t) return nullptr;
  const KernelTemplate& opened = *reinterpret_cast<const KernelTemplate*>(t);
  const LoadedKernel* ready = opened.ready().find_plain(nullptr, values, count);
  if (!ready) [[unlikely]]
    ready = opened.ready().find(nullptr, values, count);
  return reinterpret_cast<const kiln_kernel*>(ready);
}

kiln_status kiln_template_get_or_fallback(kiln_template* t, const char* const* names,
                                          const kiln_value* values, size_t count, const kiln_get* get,
                                          const kiln_kernel** out) {
  if (t && out) [[likely]] {
    if (const LoadedKernel* chosen =
            reinterpret_cast<KernelTemplate*>(t)->chosen().find_plain(names, values, count)) [[likely]] {
      *out = handle_of(*chosen);
      return KILN_OK;
    }
  }
  return slowly<&KernelTemplate::chosen, &KernelTemplate::get_or_fallback>(t, names, values, count, get, out);
}

kiln_status kiln_template_get_async(kiln_template* t, const char* const* names, const kiln_value* values,
                                    size_t count, const kiln_get* get, kiln_future** out) {
  return guarded([&] {
    require(out != nullptr, "out is null");
    *out = new kiln_future{of(t).get_async(values_of(of(t), names, values, count), request_of(get))};
  });
}

kiln_status kiln_future_wait(kiln_future* future, double seconds, const kiln_kernel** out) {
  return guarded([&] {
    require(future && out, "future and out must not be null");
    refuse_in_child(*future);
    const base::Deadline until = wait_of(seconds);
    if (until.at() != base::Clock::time_point::max() &&
        future->result.wait_until(until.at()) != std::future_status::ready)
      throw Error(Errc::deadline, "the kernel is not ready yet");
    *out = handle_of(*future->result.get());
  });
}

kiln_status kiln_future_done(kiln_future* future, int32_t* done) {
  return guarded([&] {
    require(future && done, "future and done must not be null");
    refuse_in_child(*future);
    *done = future->result.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  });
}

void kiln_future_destroy(kiln_future* future) { delete future; }

kiln_status kiln_template_prefetch(kiln_template* t, const char* const* names, const kiln_value* values,
                                   size_t count) {
  return guarded([&] { of(t).prefetch(values_of(of(t), names, values, count)); });
}

void kiln_capture_begin(void) { ++t_capture_depth; }

void kiln_capture_end(void) {
  if (t_capture_depth > 0) --t_capture_depth;
}

kiln_status kiln_template_compile(kiln_template* t, const char* const* names, const kiln_value* values,
                                  size_t count, kiln_image* out) {
  return guarded([&] {
    require_sized(out, sizeof *out);  // a shorter one could not be released
    struct Owner {
      Obtained obtained;
      std::string specialization;
    };
    auto owner = std::make_unique<Owner>(Owner{of(t).compile(values_of(of(t), names, values, count)), {}});
    const StoredImage& image = *owner->obtained.image;
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
    const compile::EntryFacts& facts = k.facts();
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
    info.arch = k.image().facts.arch.c_str();
    fill_sized(out, info);
  });
}

kiln_status kiln_kernel_entry(const kiln_kernel* kernel, const char* name, const kiln_kernel** out) {
  return guarded([&] {
    require(name && out, "name and out must not be null");
    *out = handle_of(of(kernel).entry(name));
  });
}

kiln_status kiln_kernel_global(const kiln_kernel* kernel, const char* name, kiln_global* out) {
  return guarded([&] {
    require(name != nullptr, "name is null");
    const Library::Global found = of(kernel).global(name);
    kiln_global result{};
    result.address = found.address;
    result.bytes = found.bytes;
    fill_sized(out, result);
  });
}

kiln_status kiln_kernel_constant(const kiln_kernel* kernel, const char* name, int64_t* out) {
  return guarded([&] {
    require(name && out, "name and out must not be null");
    *out = of(kernel).constant(name);
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

kiln_status kiln_template_get_family(kiln_template* t, const char* const* names, const kiln_value* values,
                                     size_t count, const kiln_get* get, const kiln_family** out) {
  return guarded([&] {
    require(out != nullptr, "out is null");
    *out = handle_of(of(t).get_family(values_of(of(t), names, values, count), request_of(get)));
  });
}

kiln_status kiln_family_launch(const kiln_family* family, CUstream stream, const kiln_arg_type* types,
                               const void* const* data, size_t count) {
  return guarded([&] {
    require(count == 0 || (types && data), "types and data must not be null");
    of(family).member_for(types, data, count).launch(stream, types, data, count);
  });
}

kiln_status kiln_family_member(const kiln_family* family, int64_t value, const kiln_kernel** out) {
  return guarded([&] {
    require(out != nullptr, "out is null");
    *out = handle_of(of(family).member(value));
  });
}

kiln_status kiln_family_get_info(const kiln_family* family, kiln_family_info* out) {
  return guarded([&] {
    const source::FamilySpec& spec = of(family).spec();
    const source::Manifest& manifest = of(family).member(0).manifest();
    kiln_family_info info{};
    info.by = manifest.arguments[static_cast<std::size_t>(spec.by)].name.c_str();
    info.parameter = manifest.parameters[static_cast<std::size_t>(spec.parameter)].name.c_str();
    info.by_index = static_cast<uint32_t>(spec.by);
    info.member_count = static_cast<uint32_t>(spec.edges.size());
    info.edges = spec.edges.all().data();
    fill_sized(out, info);
  });
}

kiln_status kiln_kernel_launch_raw(const kiln_kernel* kernel, const kiln_launch_config* config,
                                   void** parameters) {
  return guarded([&] {
    require(config != nullptr, "config is null");
    if (config->struct_size == sizeof *config) [[likely]]
      return of(kernel).launch_raw(*config, parameters);
    of(kernel).launch_raw(sized(config), parameters);
  });
}

}  // extern "C"
