#include "tools/kiln/plan/plan.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/text.hpp"
#include "compile/key/tuned_choice.hpp"
#include "instantiate/other_archs.hpp"
#include "kiln/error.hpp"
#include "kiln/kiln.h"
#include "manifest/parameter_value.hpp"
#include "runtime/state/recorder.hpp"
#include "runtime/state/template_dump.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/plan/text.hpp"
#include "tools/kiln/plan/tuned_device.hpp"

namespace kiln::cli {
namespace {

using source::PlannedSpecialization;

/// The plan's templates. Each is opened once, however many rows name it.
class Origins {
 public:
  explicit Origins(source::Catalog& catalog) : catalog_(catalog) {}
  const std::shared_ptr<const source::Template>& open(const std::string& name) {
    auto& origin = known_[name];
    if (!origin) origin = catalog_.open(name);
    return origin;
  }

 private:
  source::Catalog& catalog_;
  std::map<std::string, std::shared_ptr<const source::Template>> known_;
};

/// Reads a plan file. When the file is missing and a template has that name, the error explains the mistake.
std::string read_plan(const std::string& file, const source::Catalog& catalog) try {
  return read_plan_text(file);
} catch (const Error&) {
  const std::vector<std::string> names = catalog.names();
  if (std::find(names.begin(), names.end(), file) == names.end()) throw;
  throw Error(Errc::invalid_argument,
              "'" + file + "' is a template, and prewarm takes plan files: 'kiln compile " + file +
                  " P=V...' makes one specialisation, a plan with rows\n[[prewarm]]\ntemplate = \"" + file +
                  "\"\nmakes several, and 'kiln prewarm' alone makes what every template's manifest lists");
}

std::vector<PlannedSpecialization> read_rows(source::Catalog& catalog, Origins& origins,
                                             const std::vector<std::string>& files,
                                             source::PlanNotes& notes) {
  std::vector<PlannedSpecialization> rows;
  const auto append = [&](std::vector<PlannedSpecialization>&& more) {
    std::move(more.begin(), more.end(), std::back_inserter(rows));
  };
  for (const std::string& file : files) {
    const std::string text = read_plan(file, catalog);
    try {
      append(source::parse_plan(text, file, &notes));
    } catch (const Error& error) {
      // A mistake in a plan is a wrong argument of the command; a mistake in a template's manifest is not.
      throw Error(error.code() == Errc::manifest ? Errc::invalid_argument : error.code(), error.what());
    }
  }
  if (!files.empty()) return rows;
  const std::vector<std::string> names = catalog.names();
  if (names.empty()) {
    const auto& directories = catalog.directories();
    throw Error(Errc::unknown_template,
                "no templates found in " +
                    (directories.empty() ? "any directory" : base::join(directories, ", ")) +
                    "; set KILN_TEMPLATE_PATH or --template-path");
  }
  for (const std::string& name : names) {
    const auto& origin = origins.open(name);
    if (!origin->manifest.internal) append(source::shipped_plan(origin->manifest, &notes));
  }
  return rows;
}

struct Making {
  Context& context;
  Origins& origins;
  const PlanDevice& device;
  PrewarmPlan& plan;
};

PlannedTask task_of(const PlannedSpecialization& row, const std::shared_ptr<const source::Template>& origin,
                    source::Resolved resolved, const std::vector<Parameter>& tuned) {
  PlannedTask task;
  task.origin = origin;
  task.label = row.template_name + ' ' + text_of(row.values) + ' ' + resolved.arch.name();
  if (!tuned.empty()) task.label += " tuned " + text_of(tuned);
  task.resolved = std::move(resolved), task.tuned = tuned;
  return task;
}

cache::Record record_of(const source::Manifest& manifest, const runtime::RecordedCall& recorded,
                        const compile::MadeChoiceKey& made, const std::string& device) {
  compile::TunedChoice choice;
  choice.template_name = manifest.name, choice.arch = recorded.plain.arch.name(), choice.device = device;
  for (const Parameter& p : recorded.plain.specialization.parameters) {
    const auto same = [&](const Parameter& chosen) { return chosen.name == p.name; };
    if (std::none_of(recorded.chosen.begin(), recorded.chosen.end(), same)) choice.fixed.push_back(p);
  }
  choice.chosen = recorded.chosen;
  choice.kiln_version = kiln_version();  // not measured here, so it has no timings and no time
  return {made.key, compile::encode(choice), made.text, {}};
}

/// Makes the tasks of a recorded row. On the device, the call that left `tuned` open shall get
/// the recorded values.
/// - no stored choice says so: a choice with these values is planned;
/// - a stored choice with other values stays: the kernel with those values is planned, too.
std::vector<PlannedTask> recorded_tasks(Making& making, const PlannedSpecialization& row,
                                        const std::shared_ptr<const source::Template>& origin,
                                        const runtime::RecordedCall& recorded, source::Resolved resolved,
                                        const std::string& device) {
  runtime::Core& core = making.context.service().core();
  std::vector<PlannedTask> out;
  out.push_back(task_of(row, origin, std::move(resolved), recorded.chosen));
  const compile::MadeChoiceKey made = runtime::Choices::key_of(source::instantiate(origin, recorded.plain),
                                                               recorded.free, device, core.state().files);
  const auto found = core.choices().find(made, base::Deadline::never()).found;
  const bool agrees = found ? found->choice.chosen == recorded.chosen
                            : out.front().resolved.specialization == recorded.plain.specialization;
  const bool replaced = !agrees && (!found || making.device.record_wins);
  if (found || replaced)
    making.plan.choices.push_back(
        {made.key, out.front().label,
         replaced ? std::optional(record_of(origin->manifest, recorded, made, device)) : std::nullopt});
  out.front().choice_missing = replaced;
  if (agrees || replaced) return out;
  runtime::TunedCall call = runtime::resolve_tuned(core.state().files, core.choices(), origin, recorded.call,
                                                   recorded.plain.arch, device);
  out.push_back(task_of(row, origin, std::move(call.resolved), call.tuned));
  return out;
}

std::vector<Value> positional_of(const PlannedSpecialization& row, const source::Manifest& manifest) {
  std::vector<NamedValue> named;
  for (const Parameter& p : row.values) named.push_back({p.name, Value(p.value)});
  return source::positional(manifest, named);
}

std::vector<PlannedTask> make_tasks(Making& making, const PlannedSpecialization& row, base::Arch arch) {
  const auto& origin = making.origins.open(row.template_name);
  const std::vector<Value> values = positional_of(row, origin->manifest);
  const PlanDevice& device = making.device;
  std::string name;  // found only when needed, because it takes a driver
  if (has_tune(origin->manifest))
    name = device.this_gpu ? making.context.target_device(device.said, arch) : device.said;
  runtime::TunedCall call =
      runtime::resolve_tuned(making.context.service().state().files,
                             making.context.service().core().choices(), origin, values, arch, name);
  if (!row.tuned.empty()) {
    const auto recorded = runtime::recorded_call(*origin, values, row.tuned, arch);
    if (recorded && name.empty()) ++making.plan.without_device;
    if (recorded && !name.empty())
      return recorded_tasks(making, row, origin, *recorded, std::move(call.resolved), name);
  }
  std::vector<PlannedTask> out;
  out.push_back(task_of(row, origin, std::move(call.resolved), call.tuned));
  if (call.choice) making.plan.choices.push_back({*call.choice, out.front().label});
  return out;
}

/// The archs that a row without one is made for. A device that the row's template or values do not allow is
/// reported with its own arch.
std::vector<base::Arch> archs_for(Making& making, const PlannedSpecialization& row,
                                  const TargetGpus& targets) {
  std::vector<base::Arch> out = targets.archs;
  if (targets.devices.empty()) return out;
  const auto add = [&](base::Arch arch) {
    if (std::find(out.begin(), out.end(), arch) == out.end()) out.push_back(arch);
  };
  const auto& origin = making.origins.open(row.template_name);
  try {
    const std::vector<Value> values = positional_of(row, origin->manifest);
    std::vector<std::string> refused;
    for (const base::Arch arch : source::covering_archs(origin, values, targets.devices, &refused)) add(arch);
    for (std::string& why : refused) making.plan.skipped.push_back(std::move(why));
  } catch (
      const Error&) {  // the caller resolves the row for these archs, and reports the error with its place
    for (const int device : targets.devices) add(base::Arch(device));
  }
  return out;
}

/// The key in the row that `error` is about.
std::string key_of(const Error& error, Origins& origins, const PlannedSpecialization& row) {
  if (error.code() == Errc::unknown_template) return "template";
  if (error.code() == Errc::unsupported_arch) return "arch";
  if (error.code() != Errc::unknown_parameter && error.code() != Errc::invalid_value) return {};
  const source::Manifest& manifest = origins.open(row.template_name)->manifest;
  for (const Parameter& p : row.values) {
    const int index = parameter_index(manifest, p.name);
    if (index < 0 || !source::parameter_value(manifest.parameters[static_cast<std::size_t>(index)], p.value))
      return p.name;
  }
  return {};  // the error is about a parameter that was not given
}

/// The specialisations that a row stands for: a value "*" stands for every value of its parameter.
std::vector<PlannedSpecialization> with_every_value(const PlannedSpecialization& row, Origins& origins) {
  const auto star = std::find_if(row.values.begin(), row.values.end(),
                                 [](const Parameter& p) { return p.value == source::kEveryValue; });
  if (star == row.values.end()) return {row};
  try {
    return source::with_every_value(row, origins.open(row.template_name)->manifest);
  } catch (const Error& error) {
    const bool unknown = error.code() == Errc::unknown_template;
    throw Error(error.code() == Errc::manifest ? Errc::invalid_argument : error.code(),
                row.row->where(unknown ? "template" : star->name) + ": " + error.what());
  }
}

/// Puts the specialisations of one template together, because they share headers. Templates whose
/// manifests allow long compiles come first, so that no long compile is left for the end. Otherwise keeps
/// the plan's order.
void put_in_order(std::vector<PlannedTask>& tasks) {
  std::map<std::string, std::size_t> rank;
  for (const PlannedTask& task : tasks) rank.emplace(task.specialization().template_name, rank.size());
  const auto place = [&](const PlannedTask& task) {
    return std::pair(-task.origin->manifest.limits.compile_seconds.value_or(0),
                     rank.at(task.specialization().template_name));
  };
  std::stable_sort(tasks.begin(), tasks.end(),
                   [&](const PlannedTask& a, const PlannedTask& b) { return place(a) < place(b); });
}

}  // namespace

PrewarmPlan make_plan(Context& context, const std::vector<std::string>& files, const TargetGpus& targets,
                      const PlanDevice& device) {
  source::Catalog& catalog = context.service().catalog();
  PrewarmPlan plan;
  Origins origins(catalog);
  source::PlanNotes notes;
  std::map<std::string, std::size_t> seen;
  Making making{context, origins, device, plan};
  std::vector<PlannedSpecialization> rows;
  for (const PlannedSpecialization& row : read_rows(catalog, origins, files, notes)) {
    for (PlannedSpecialization& one : with_every_value(row, origins)) rows.push_back(std::move(one));
  }
  for (const PlannedSpecialization& row : rows) {
    const bool own_arch = !row.arch.empty() && !targets.instead_of_rows;
    const bool for_gpus = targets.instead_of_rows || !targets.devices.empty();
    for (const base::Arch& arch :
         own_arch ? std::vector{base::Arch::parse(row.arch)} : archs_for(making, row, targets)) {
      try {
        for (PlannedTask& task : make_tasks(making, row, arch)) {
          const auto [known, fresh] =
              seen.emplace(task.specialization().to_string() + ' ' + arch.name(), plan.tasks.size());
          if (!fresh) {
            ++plan.repeats;
            plan.tasks[known->second].choice_missing |= task.choice_missing;
          } else {
            plan.tasks.push_back(std::move(task));
          }
        }
      } catch (const Error& error) {
        // A template without a kernel for an arch is a mistake only in a row that names the arch. A plan for
        // several archs skips it.
        if (error.code() == Errc::manifest) throw;  // such an error names its own file and line
        const bool skips =
            error.code() == Errc::unsupported_arch || (for_gpus && error.code() == Errc::requirement);
        if (!skips || own_arch)
          throw Error(error.code(), row.row->where(key_of(error, origins, row)) + ": " + error.what());
        plan.skipped.push_back(row.template_name + ' ' + text_of(row.values) + ' ' + arch.name() + ": " +
                               error.what());
      }
    }
  }
  put_in_order(plan.tasks);
  plan.repeats += notes.repeats;
  plan.ignored = std::move(notes.ignored);
  return plan;
}

std::string template_path_of(const std::vector<std::string>& files, const std::string& template_path) {
  std::string out = template_path;
  for (const std::string& file : files) {
    const std::string directory = runtime::templates_beside(file);
    std::error_code ignored;
    if (!std::filesystem::is_directory(directory, ignored)) continue;
    if (directory.find(':') != std::string::npos) {
      throw Error(Errc::invalid_argument,
                  "'" + directory +
                      "' cannot be in a template path, where colons separate directories; move '" + file +
                      "' and this directory to a path without a colon");
    }
    out += (out.empty() ? "" : ":") + directory;
  }
  return out;
}

}  // namespace kiln::cli
