#include "tools/kiln/plan/select.hpp"

#include <algorithm>
#include <set>

#include "base/log.hpp"
#include "runtime/path/core.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/plan/plan.hpp"
#include "tools/kiln/plan/tuned_device.hpp"

namespace kiln::cli {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Selects the records that the lookup path would find for the plan's rows, without compiling.
Selection of_plan(Context& context, const SelectionFlags& flags, BundleStores& stores,
                  const std::set<Key>& removed) {
  context.template_path = template_path_of(flags.plans, context.template_path);
  runtime::Core& core = context.service().core();
  core.state().stores.use_places(stores.places());
  const PrewarmPlan plan = make_plan(context, flags.plans, context.target_gpus(), {flags.device, true});
  for (const std::string& ignored : plan.ignored) base::warn(ignored);
  if (!flags.device.empty() && plan.choices.empty())
    throw Error(
        Errc::invalid_argument,
        "--device '" + flags.device +
            "': no specialisation of the plan was tuned for a device of this name ('kiln tune --list' "
            "lists the tuned choices)");
  Selection out;
  std::set<Key> keys;
  std::set<std::pair<std::string, std::string>> exported;  // their choices are exported, too
  for (const PlannedTask& task : plan.tasks) {
    if (PoliteInterrupt::requested()) throw Interrupted{};
    if (!flags.templates.empty() && !contains(flags.templates, task.specialization().template_name)) continue;
    const auto found =
        core.path().there(source::instantiate(task.origin, task.resolved), {.rejected = removed});
    if (found) {
      keys.insert(found->image->key);
      exported.emplace(task.specialization().template_name, task.resolved.arch.name());
    }
    if (!found || task.choice_missing) {
      out.missing.push_back(task.label);
    }
  }
  for (const Key& key : stores.choices([&](const std::string&name, const std::string&arch) {
         return exported.contains({name, arch});
       }))
    if (!removed.contains(key)) keys.insert(key);
  out.keys.assign(keys.begin(), keys.end());
  return out;
}

}  // namespace

void add_selection_options(Command sub, SelectionFlags& flags) {
  sub.option("plans", flags.plans, "Plan files and traces: only the entries that they ask for")
      .type_name("PLAN.toml");
  sub.option("-t,--template", flags.templates, "Only entries of this template; may be repeated")
      .type_name("NAME")
      .allow_extra_args(false);
  sub.flag("--all", flags.all, "All entries of kernels");
  sub.flag("--all-jits", flags.all_jits, "Also the blobs of other JIT compilers, of every space");
  add_device_option(sub, flags.device);
}

namespace {

Selection select_kernels(Context& context, const SelectionFlags& flags, BundleStores& stores,
                         const std::set<Key>& removed) {
  const bool by_arch = !context.arch.empty();
  if (flags.all && (!flags.plans.empty() || !flags.templates.empty() || by_arch))
    throw Error(Errc::invalid_argument,
                "--all takes all entries: it cannot be combined with a plan, -t or --arch");
  const bool kernels = flags.all || !flags.plans.empty() || !flags.templates.empty() || by_arch;
  if (!kernels && !flags.all_jits)
    throw Error(Errc::invalid_argument,
                "no entries are selected; give plans or traces, -t NAME, --arch ARCH, --all, or --all-jits");
  if (flags.plans.empty() && !flags.device.empty())
    throw Error(
        Errc::invalid_argument,
        "--device resolves the rows of a plan, and no plan was given; without one, the tuned choices of all "
        "devices are taken");
  if (!kernels) return {};
  if (!flags.plans.empty()) return of_plan(context, flags, stores, removed);
  std::vector<std::string> archs;
  if (by_arch)
    for (const base::Arch& arch : context.target_archs()) archs.push_back(arch.name());
  Selection out;
  out.keys = stores.keys([&](const std::string& name, const std::string& arch) {
    return (flags.templates.empty() || contains(flags.templates, name)) &&
           (archs.empty() || contains(archs, arch));
  });
  return out;
}

}  // namespace

Selection select_entries(Context& context, const SelectionFlags& flags, BundleStores& stores,
                         const std::set<Key>& removed) {
  Selection out = select_kernels(context, flags, stores, removed);
  if (!flags.all_jits) return out;
  for (const Key& key : stores.blobs())
    if (!removed.contains(key)) out.keys.push_back(key);
  std::sort(out.keys.begin(), out.keys.end());
  return out;
}

}  // namespace kiln::cli
