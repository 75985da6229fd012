#include "runtime/kernels/scope.hpp"

#include "kiln/error.hpp"

namespace kiln::runtime {

void Scopes::enter(Scope& scope) {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  state.all.insert(&scope);
}

void Scopes::leave(Scope& scope) noexcept {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  state.all.erase(&scope);
}

std::vector<std::shared_ptr<KernelTemplate>> Scopes::templates(Scope& own) {
  auto out = own.templates();
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  for (Scope* scope : state.all) {
    if (scope == &own) continue;
    for (auto& opened : scope->templates()) out.push_back(std::move(opened));
  }
  return out;
}

Scope::Scope(Scopes& all) : all_(all) { all_.enter(*this); }

Scope::~Scope() {
  all_.leave(*this);
  release();  // background work may keep a template alive for a while: its kernels go now
}

KernelTemplate& Scope::open(const std::string& name, int device, const std::string& arch) {
  return open(name, all_.bind(device, arch));
}

KernelTemplate& Scope::open(const std::string& name, const Target& target) {
  Core& core = all_.core();
  if (core.permission().compile) core.expect_misses();  // the manifest is parsed meanwhile
  const std::shared_ptr<KernelTemplate> opened = open_alone(name, target);
  const source::Manifest& manifest = opened->origin().manifest;
  if (!manifest.fallback.empty()) {
    std::shared_ptr<KernelTemplate> generic = open_alone(manifest.fallback, target);
    if (generic->origin().manifest.fallback == name)
      throw Error(Errc::manifest, manifest.file + ": '" + name + "' and '" + manifest.fallback +
                                      "' name each other as fallback");
    State& state = state_.get();
    const std::lock_guard lock(state.mutex);
    if (!opened->has_fallback()) opened->set_fallback(generic);
  }
  return *opened;
}

std::shared_ptr<KernelTemplate> Scope::open_alone(const std::string& name, const Target& target) {
  const auto origin = all_.catalog().open(name);
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  auto& opened = state.opened[{name, target.context, target.context_id, target.arch}];
  if (!opened || opened->shared_origin() != origin) {
    auto fresh = std::make_shared<KernelTemplate>(all_.core(), origin, target);
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
