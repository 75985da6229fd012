#include "tools/kiln/why/answer.hpp"

#include <algorithm>
#include <filesystem>

#include "cache/flight/activity.hpp"
#include "tools/kiln/store/spelling.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

constexpr auto kPatience = std::chrono::seconds(10);  // for a store whose gate a writer holds

/// "13.0.88" from the target of the link libnvrtc.so.13; empty when the target's name has no dotted version.
std::string version_of_library(const std::string& path) {
  std::error_code ignored;
  const std::string file = fs::canonical(path, ignored).filename().string();
  constexpr std::string_view mark = ".so.";
  const auto at = file.find(mark);
  const std::string version = at == std::string::npos ? "" : file.substr(at + mark.size());
  return version.find('.') == std::string::npos ? "" : version;
}

/// Stores of other versions beside DIRECTORY/v1.
std::vector<std::string> other_schemas(const std::string& directory) {
  std::vector<std::string> out;
  std::error_code ignored;
  for (const auto& place : fs::directory_iterator(directory, ignored)) {
    const std::string name = place.path().filename().string();
    const bool versioned = name.size() > 1 && name[0] == 'v' && name != "v1" &&
                           name.find_first_not_of("0123456789", 1) == std::string::npos;
    if (versioned && fs::exists(place.path() / "data.mdb", ignored)) out.push_back(place.path().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

Step step_of(const WhyAnswer& answer, runtime::Core& core, bool may_compile) {
  if (answer.path.found) {
    if (answer.path.found->image->facts.arch != answer.resolved.arch.name()) return Step::other_arch;
    if (answer.path.found->image->key != answer.path.made.key) return Step::foreign_toolchain;
    return answer.path.found->outcome == Outcome::layer ? Step::layer : Step::disk;
  }
  if (!may_compile) return Step::sealed;
  if (answer.flight) return Step::waiting;
  return core.state().files.toolkit().has_compiler() ? Step::compile : Step::no_compiler;
}

}  // namespace

WhyAnswer explain(runtime::Service& service, const WhyRequest& request) {
  runtime::Core& core = service.core();
  const PlacesView view = view_places(service.config());
  const auto& [writable, readable] = view.places;
  core.state().stores.use_places(view.places);
  const auto origin = service.catalog().open(request.template_name);
  const source::Manifest& manifest = origin->manifest;
  WhyAnswer out;
  runtime::TunedCall call = runtime::resolve_tuned(
      core.state().files, core.choices(), origin,
      source::positional(manifest, source::parse_assignments(request.values)), request.arch, request.device);
  out.resolved = std::move(call.resolved), out.tuned = std::move(call.tuned);
  out.fallback = manifest.fallback, out.source_name = origin->kernel.name;
  out.directory = view.directory, out.toolchain = request.toolchain;
  const source::Instantiation unit = source::instantiate(origin, out.resolved);
  out.path = core.path().explain(unit, {.deadline = base::Deadline::after(kPatience),
                                        .permission = core.permission(),
                                        .any_arch = request.arch == base::Arch(request.arch.number)});
  if (writable && !out.path.found)
    out.flight = cache::flight_under_way(writable->directory() + "/v1", out.path.made.key);
  if (out.flight && out.flight->here())
    out.flight_state = look_at_process(out.flight->pid, out.flight->started_ms).state;
  out.step = step_of(out, core, service.core().permission().compile);
  out.compiler_version = version_of_library(core.state().files.toolkit().compiler.library);

  Spelling spelling(service.config());
  const std::string arch = request.arch.name();
  const auto written = [&](const std::vector<Parameter>& parameters, const std::string& for_arch) {
    const std::string said = spelling.shortest(manifest.name, parameters, for_arch);
    return manifest.name + (said.empty() ? "" : " " + said);
  };
  out.shortest = written(out.resolved.specialization.parameters, arch);
  const auto stores = core.state().stores.asked();
  if (is_hit(out)) {
    out.directory = out.path.directory;
    for (const auto& store : stores) {
      if (store->directory() == out.directory && !out.entry)
        out.entry = entry_of(*store, out.path.found->image->key);
    }
    return out;
  }
  for (const std::string& directory : {view.directory, readable ? readable->directory() : std::string()})
    for (std::string& other : other_schemas(directory)) out.other_schemas.push_back(std::move(other));
  out.nearest = find_nearest(stores,
                             {out.path.made, unit.unit, arch, out.resolved.specialization.parameters,
                              request.toolchain, core.state().files.toolkit().has_compiler()},
                             request.nearest);
  for (const Near& near : out.nearest.best)
    out.nearest_written.push_back(written(near.facts.parameters, near.facts.arch));
  return out;
}

}  // namespace kiln::cli
