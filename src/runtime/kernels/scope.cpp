#include "runtime/kernels/scope.hpp"

#include "kiln/error.hpp"
#include "runtime/service/service.hpp"

namespace kiln::runtime {

Scope::Scope(Service& service) : service_(service) { service_.enter(*this); }

Scope::~Scope() {
  service_.leave(*this);
  release();  // work behind callers' backs may keep a template alive for a while: its kernels go now
}

KernelTemplate& Scope::open(const std::string& name, int device, const std::string& arch) {
  return open(name, service_.bind(device, arch));
}

KernelTemplate& Scope::open(const std::string& name, const Target& target) {
  if (service_.may_compile()) service_.pipeline().expect_misses();  // the manifest is parsed meanwhile
  const std::shared_ptr<KernelTemplate> opened = open_alone(name, target);
  const source::Manifest& manifest = opened->origin().manifest;
  if (!manifest.fallback.empty()) {
    std::shared_ptr<KernelTemplate> generic = open_alone(manifest.fallback, target);
    if (generic->origin().manifest.fallback == name)
      throw Error(Errc::manifest, manifest.file + ": '" + name + "' and '" + manifest.fallback +
                                      "' name each other as fallback");
    State& state = state_.get();
    const std::lock_guard lock(state.mutex);
    if (!opened->has_fallback()) opened->set_fallback(std::move(generic));
  }
  return *opened;
}

std::shared_ptr<KernelTemplate> Scope::open_alone(const std::string& name, const Target& target) {
  const auto origin = service_.catalog().open(name);
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  auto& opened = state.opened[{name, target.context, target.context_id, target.arch.number}];
  if (!opened || opened->shared_origin() != origin) {
    auto fresh = std::make_shared<KernelTemplate>(service_, origin, target);
    state.templates.push_back(fresh);
    opened = std::move(fresh);
  }
  return opened;
}

std::vector<std::shared_ptr<KernelTemplate>> Scope::templates() {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  return state.templates;
}

void Scope::release() {
  for (const auto& opened : templates()) opened->release();
}

}  // namespace kiln::runtime
