// kiln prewarm: compile all of a plan ahead of time. Each image is published at once, so an interrupted run
// is resumed by starting it again.
#include <CLI/CLI.hpp>

#include "commands.hpp"
#include "context.hpp"
#include "interrupt.hpp"
#include "prewarm_report.hpp"
#include "prewarm_run.hpp"

namespace kiln::cli {
namespace {

struct Arguments {
  std::vector<std::string> plans;
  int jobs = 0;
  bool keep_going = false, check = false;
};

int exit_of(const PrewarmResult& result) {
  if (result.interrupted) return kInterrupted;
  const std::size_t bad = result.failed() + result.uncached;
  if (bad == 0) return kDone;
  return result.keep_going && result.succeeded() > result.uncached ? kPartly : kFailed;
}

int prewarm(Context& context, const Arguments& arguments) {
  context.jobs = arguments.jobs;
  runtime::Service& service = context.service();
  const PrewarmPlan plan = make_plan(service.catalog(), arguments.plans, context.target_archs());
  if (arguments.check) return report_coverage(context, plan, check_coverage(service.pipeline(), plan));
  if (!service.pipeline().store())
    throw Error(Errc::io, "no directory for the cache: there is nothing to prewarm. Set KILN_CACHE_DIR");
  const PrewarmResult result =
      run_prewarm(service.pipeline(), plan, {service.config().jobs(), arguments.keep_going, !context.json});
  report_prewarm(context, plan, result, service.pipeline().store()->directory());
  return exit_of(result);
}

}  // namespace

void add_prewarm(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* sub = context.add_command(app, "prewarm", "Compile everything a plan asks for, ahead of time",
                                      [&context, arguments] { return prewarm(context, *arguments); });
  sub->add_option("plans", arguments->plans, "Plan files; default: what the templates' manifests list")
      ->type_name("PLAN.toml");
  sub->add_option("-j,--jobs", arguments->jobs, "Compiles at once; default: KILN_JOBS, else one per core")
      ->type_name("N")
      ->check(CLI::Range(1, 1024).description(""));
  sub->add_flag("--keep-going", arguments->keep_going, "Go on after a failure");
  sub->add_flag("--check", arguments->check,
                "Compile nothing; list what is not in the cache (exit status 3)");
  sub->footer(
      "--arch may be a list: --arch sm_80,sm_90a. Rows of a plan that name an arch keep it.\n"
      "Exit status: 0 all there, 1 failed, 3 some failed under --keep-going or not covered.");
}

}  // namespace kiln::cli
