#include "tools/kiln/prewarm/gpus.hpp"

#include <algorithm>
#include <map>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "toolchain/gpus.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/cli/table.hpp"
#include "tools/kiln/plan/run.hpp"

namespace kiln::cli {
namespace {

struct GpuCoverage {
  std::size_t total = 0;
  std::map<base::Arch, std::size_t> by;  ///< kernels, by the arch of the image that serves them
  std::vector<const PlannedTask*> missing;

  std::string shown() const {
    std::string out;
    for (const auto& [arch, count] : by)
      out += (out.empty() ? "" : ", ") + std::to_string(count) + " by " + arch.name();
    return out.empty() ? "-" : out;
  }
};

std::string capability_text(int capability) {
  return std::to_string(capability / 10) + '.' + std::to_string(capability % 10);
}

Json gpu_row(const GpuNamed& gpu, const GpuCoverage& coverage) {
  Json out{{"gpu", gpu.name},         {"compute_capability", capability_text(gpu.capability)},
           {"total", coverage.total}, {"covered", coverage.total - coverage.missing.size()},
           {"by", Json::object()},    {"missing", Json::array()}};
  for (const auto& [arch, count] : coverage.by) out["by"][arch.name()] = count;
  for (const PlannedTask* task : coverage.missing)
    out["missing"].push_back({{"template", task->specialization().template_name},
                              {"params", json_of(task->specialization().parameters)}});
  return out;
}

}  // namespace

std::vector<GpuNamed> parse_gpus(const std::string& list) {
  std::vector<GpuNamed> out;
  for (const std::string& name : base::split(list, ',')) {
    std::vector<int> capabilities = toolchain::capabilities_of(name);
    if (capabilities.empty()) {
      try {
        const base::Arch arch = base::Arch::parse(name);
        if (arch == base::Arch(arch.number)) capabilities.push_back(arch.number);
      } catch (const Error&) {  // the message below says what is known
      }
      if (capabilities.empty()) {
        throw Error(Errc::invalid_argument,
                    "--gpus: " + base::quote(name) +
                        " is no GPU that kiln knows, and no compute capability such as "
                        "sm_100; known: " +
                        toolchain::known_gpus());
      }
    }
    for (const int capability : capabilities) out.push_back({name, capability});
  }
  if (out.empty() && !list.empty())
    throw Error(Errc::invalid_argument, "--gpus names no GPU; known: " + toolchain::known_gpus());
  return out;
}

int report_gpus(Context& context, const PrewarmPlan& plan, const std::vector<GpuNamed>& gpus) {
  std::map<int, GpuCoverage> of;
  for (const PlannedTask& task : plan.tasks) {
    GpuCoverage& coverage = of[task.resolved.arch.number];
    ++coverage.total;
    if (const auto arch = serving_arch(context.service().core(), task))
      ++coverage.by[*arch];
    else
      coverage.missing.push_back(&task);
  }
  // A GPU that no row is for is not served, either.
  const bool complete = std::all_of(gpus.begin(), gpus.end(), [&](const GpuNamed& gpu) {
    const GpuCoverage& coverage = of[gpu.capability];
    return coverage.total > 0 && coverage.missing.empty();
  });
  if (context.json) {
    Json out{{"schema", context.schema()}, {"check", true},           {"total", plan.tasks.size()},
             {"skipped", plan.skipped},    {"repeats", plan.repeats}, {"ignored", plan.ignored},
             {"gpus", Json::array()}};
    for (const GpuNamed& gpu : gpus) out["gpus"].push_back(gpu_row(gpu, of[gpu.capability]));
    print_json(out);
    return complete ? kDone : kPartly;
  }
  using Fit = Table::Fit;
  Table table({{"GPU"}, {"COMPUTE"}, {"KERNELS", Fit::right}, {"MISSING", Fit::right}, {"SERVED"}});
  for (const GpuNamed& gpu : gpus) {
    const GpuCoverage& coverage = of[gpu.capability];
    table.add({gpu.name, capability_text(gpu.capability), std::to_string(coverage.total),
               std::to_string(coverage.missing.size()), coverage.shown()});
  }
  table.print();
  for (const auto& [capability, coverage] : of)
    for (const PlannedTask* task : coverage.missing) print("missing  " + task->label + '\n');
  for (const std::string& skipped : plan.skipped) print("skipped  " + skipped + '\n');
  return complete ? kDone : kPartly;
}

}  // namespace kiln::cli
