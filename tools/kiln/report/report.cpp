// kiln report: writes one HTML page about the cache.
#include "tools/kiln/report/report.hpp"

#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/report/json.hpp"
#include "tools/kiln/report/page.hpp"

namespace kiln::cli {
namespace {

constexpr const char* kHelp =
    "The page needs no network and no server. It shows the cache as it is now.\n"
    "Its timeline shows the last 'kiln prewarm' that compiled something.\n"
    "A table has the spaces of other JIT compilers, with their hits, misses and what failed.\n"
    "Exit status: 0 done, 1 failed, 2 usage, 4 damage found (the page is written and says so).";

std::string damage_text(const ReportData& data) {
  return data.unreadable.empty() ? damaged_text(data.damaged)
                                 : "the cache's file is damaged: " + data.unreadable +
                                       "; 'kiln verify' lists the damage, and the next publish heals it";
}

Json summary(const Context& context, const std::string& file, std::size_t bytes, const ReportData& data) {
  Json out{{"schema", context.schema()},
           {"file", file},
           {"bytes", bytes},
           {"directory", data.directory},
           {"entries", data.store.entries},
           {"cubin_bytes", data.cubin_bytes},
           {"templates", data.templates.size()},
           {"archs", data.archs.size()},
           {"compile_ms", data.compile_ms},
           {"timed", data.timed},
           {"spaces", spaces_json(data)},
           {"prewarm_tasks", data.prewarm.run ? Json(data.prewarm.run->tasks.size()) : Json(nullptr)},
           {"prewarm_ignored", data.prewarm.problem.empty() ? Json(nullptr) : Json(data.prewarm.problem)}};
  if (data.any_damage()) out["error"] = {{"code", "damaged"}, {"message", damage_text(data)}};
  return out;
}

int write_report(const Context& context, const std::string& file) {
  if (file == "-" && context.json)
    throw Error(Errc::invalid_argument,
                "--json and the page cannot both go to stdout; name a file for the page");
  const auto data = report_data(context.config());
  const std::string page = report_page(*data);
  write_output(file, page);
  if (context.json)
    print_json(summary(context, file, page.size(), *data));
  else if (file != "-")
    print_paragraph("Wrote " + file + ", " + human_bytes(page.size()) + ": " +
                    counted(data->store.entries, "entry", "entries") + " of " +
                    (data->directory.empty() ? "no directory" : data->directory));
  if (!data->any_damage()) return kDone;
  std::fflush(stdout);
  std::fprintf(stderr, "kiln: error: %s\n", damage_text(*data).c_str());
  return kDamaged;
}

}  // namespace

void add_report(Command app, Context& context) {
  const auto file = std::make_shared<std::string>();
  const Command sub =
      context.add_command(app, "report", "Write a page about the cache, to be opened in a browser",
                          [&context, file] { return write_report(context, *file); });
  sub.option("file", *file, "File for the page; - is stdout").type_name("OUT.html").required();
  sub.footer(kHelp);
}

}  // namespace kiln::cli
