#include "prewarm_plan.hpp"

#include <cerrno>
#include <cstring>
#include <set>

#include "base/file.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"
#include "output.hpp"

namespace kiln::cli {
namespace {

struct Row {
  source::PlannedSpecialization planned;
  std::string file;  ///< empty: the template's own plan
};

std::vector<Row> read_rows(source::Catalog& catalog, const std::vector<std::string>& files) {
  std::vector<Row> rows;
  for (const std::string& file : files) {
    const auto content = base::read_file(file, std::size_t{64} << 20);
    if (!content) throw Error(Errc::io, "cannot read the plan '" + file + "': " + std::strerror(errno));
    for (auto& planned : source::parse_plan(content->bytes, file)) rows.push_back({std::move(planned), file});
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
    const auto origin = catalog.open(name);
    if (origin->manifest.internal) continue;
    for (auto& planned : source::shipped_plan(origin->manifest)) rows.push_back({std::move(planned), {}});
  }
  return rows;
}

PlannedTask make_task(source::Catalog& catalog, const Row& row, base::Arch arch) {
  PlannedTask task;
  task.origin = catalog.open(row.planned.template_name);
  const source::Manifest& manifest = task.origin->manifest;
  std::vector<NamedValue> named;
  for (const Parameter& p : row.planned.values) named.push_back({p.name, Value(p.value)});
  task.resolved = source::resolve(manifest, source::positional(manifest, named), arch);
  task.label = row.planned.template_name + ' ' + text_of(row.planned.values) + ' ' + arch.name();
  return task;
}

}  // namespace

PrewarmPlan make_plan(source::Catalog& catalog, const std::vector<std::string>& files,
                      const std::vector<base::Arch>& archs) {
  PrewarmPlan plan;
  std::set<std::string> seen;
  for (const Row& row : read_rows(catalog, files)) {
    const bool own_arch = !row.planned.arch.empty();
    for (const base::Arch& arch : own_arch ? std::vector{base::Arch::parse(row.planned.arch)} : archs) {
      try {
        PlannedTask task = make_task(catalog, row, arch);
        if (seen.insert(task.specialization().to_string() + ' ' + arch.name()).second)
          plan.tasks.push_back(std::move(task));
      } catch (const Error& error) {
        // A template that an arch has no kernel for is a mistake in a row that names the arch, and none in a
        // plan for several.
        if (error.code() != Errc::unsupported_arch || own_arch) {
          throw Error(error.code(), (row.file.empty() ? "" : row.file + ": ") + error.what());
        }
        plan.skipped.push_back(row.planned.template_name + ' ' + text_of(row.planned.values) + ' ' +
                               arch.name() + ": " + error.what());
      }
    }
  }
  return plan;
}

}  // namespace kiln::cli
