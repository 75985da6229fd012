// The C ABI over service, scopes and preparations: handles in, statuses out.
#include "base/file.hpp"

#include <cstdint>
#include "base/log.hpp"
#include "runtime/abi/common.hpp"
#include "runtime/state/process_seal.hpp"

using namespace kiln;
using namespace kiln::runtime;
using namespace kiln::runtime::c_api;

namespace {

PrepareRequest request_of(const kiln_prepare& in) {
  PrepareRequest out;
  require((in.plan != nullptr) != (in.file != nullptr), "expected either a plan's text or its file");
  require(in.until == KILN_UNTIL_READY || in.until == KILN_UNTIL_IMAGE, "until is not one of KILN_UNTIL_*");
  if (in.plan) {
    out.plan = in.plan, out.file = "<plan>";
  } else {
    auto read = base::read_file(in.file, std::size_t{64} << 20);
    if (!read) throw Error(Errc::io, "plan '" + std::string(in.file) + "': " + std::strerror(errno));
    out.plan = std::move(read->bytes), out.file = in.file;
  }
  out.image_only = in.until == KILN_UNTIL_IMAGE;
  out.may_compile = in.no_compile == 0;
  out.device = in.device, out.arch = text(in.arch);
  out.deadline = deadline_in(in.deadline_s);
  out.on_progress = in.on_progress, out.user = in.user;
  return out;
}

}  // namespace

extern "C" {

const char* kiln_version(void) { return KILN_VERSION; }

void kiln_service_destroy(kiln_service* service) { delete service; }

kiln_status kiln_service_add_template(kiln_service* service, const char* manifest, const char* source,
                                      const char* reference) {
  return guarded([&] {
    require(manifest && source, "manifest and source must not be null");
    of(service).add({manifest, source, text(reference)});
  });
}

kiln_status kiln_service_add_template_path(kiln_service* service, const char* path) {
  return guarded([&] {
    require(path != nullptr, "path must not be null");
    of(service).add_path(path);
  });
}

kiln_status kiln_service_seal(kiln_service* service) {
  return guarded([&] { of(service).seal(); });
}

kiln_status kiln_process_seal(void) {
  return guarded([] { seal_process(); });
}

void kiln_text_release(kiln_text* text) {
  if (!text || !text->owner) return;
  delete static_cast<TextOwner*>(text->owner);
  text->owner = nullptr, text->data = "", text->size = 0;
}

kiln_status kiln_service_missing(kiln_service* service, kiln_text* out) {
  return guarded([&] { give_text(out, [&] { return of(service).core().misses().plan(); }); });
}

kiln_status kiln_service_fingerprint(kiln_service* service, char out[33]) {
  return guarded([&] {
    require(out != nullptr, "out is null");
    std::snprintf(out, 33, "%s", fingerprint_of(of(service).used()).hex().c_str());
  });
}

kiln_status kiln_service_describe_fingerprint(kiln_service* service, kiln_text* out) {
  return guarded([&] { give_text(out, [&] { return to_json(of(service).used()); }); });
}

kiln_status kiln_service_adopt(kiln_service* service, uint64_t* adopted) {
  return guarded([&] {
    const std::uint64_t count = of(service).adopt();
    if (adopted) *adopted = count;
  });
}

kiln_status kiln_service_device_faults(kiln_service* service, kiln_device_fault_callback callback,
                                       void* user) {
  return guarded([&] {
    require(callback != nullptr, "callback is null");
    for (const KernelFault& found : of(service).device_faults()) {
      const std::string reason = reason_of(found.fault.code);
      kiln_device_fault fault{};
      fault.struct_size = sizeof fault;
      fault.template_name = found.template_name.c_str();
      fault.specialization = found.specialization.c_str();
      fault.reason = reason.c_str();
      fault.code = static_cast<std::int32_t>(found.fault.code);
      fault.device = found.device;
      fault.launches = found.fault.launches;
      callback(&fault, user);
    }
  });
}

kiln_status kiln_service_open(kiln_service* service, const char* name, int32_t device, const char* arch,
                              kiln_template** out) {
  return guarded([&] {
    require(name && out, "name and out must not be null");
    *out = handle_of(of(service).open(name, device, text(arch)));
  });
}

kiln_status kiln_scope_create(kiln_service* service, kiln_scope** out) {
  return guarded([&] {
    require(out != nullptr, "out is null");
    *out = reinterpret_cast<kiln_scope*>(new Scope(of(service).scopes()));
  });
}

kiln_status kiln_scope_open(kiln_scope* scope, const char* name, int32_t device, const char* arch,
                            kiln_template** out) {
  return guarded([&] {
    require(name && out, "name and out must not be null");
    *out = handle_of(of(scope).open(name, device, text(arch)));
  });
}

kiln_status kiln_scope_release(kiln_scope* scope) {
  return guarded([&] { of(scope).release(); });
}

void kiln_scope_destroy(kiln_scope* scope) { delete reinterpret_cast<Scope*>(scope); }

kiln_status kiln_service_prepare(kiln_service* service, kiln_scope* scope, const kiln_prepare* prepare,
                                 kiln_preparation** out) {
  return guarded([&] {
    require(prepare && out, "prepare and out must not be null");
    Service& in = of(service);
    *out = new kiln_preparation{
        Preparation::begin(in.scopes(), scope ? of(scope) : in.own_scope(), request_of(sized(prepare)))};
  });
}

kiln_status kiln_preparation_wait(kiln_preparation* preparation, double seconds, kiln_progress* progress) {
  return guarded([&] {
    require(preparation != nullptr, "kiln_preparation is null");
    const auto told = [&] {
      if (progress) fill_sized(progress, preparation->work->progress());
    };
    try {
      const bool done = preparation->work->wait(wait_of(seconds));
      told();
      if (!done) throw Error(Errc::deadline, "the plan is not ready yet");
    } catch (...) {
      told();
      throw;
    }
  });
}

void kiln_preparation_destroy(kiln_preparation* preparation) {
  if (preparation) preparation->work->cancel();
  delete preparation;
}

kiln_status kiln_service_stats(kiln_service* service, kiln_stats* out) {
  return guarded([&] {
    kiln_stats stats{};
    read(of(service).state().counters, stats);
    of(service).path().fleet().read(stats);
    fill_sized(out, stats);
  });
}

kiln_status kiln_set_log(void (*sink)(int32_t level, const char* message, size_t size, void* user),
                         void* user, int32_t level) {
  return guarded([&] {
    require(level >= KILN_LOG_TRACE && level <= KILN_LOG_OFF, "level is not one of KILN_LOG_*");
    base::set_log(sink, user, static_cast<base::Level>(level));
  });
}

}  // extern "C"
