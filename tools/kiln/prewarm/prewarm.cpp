// kiln prewarm: compiles a whole plan ahead of time. Each image is published at once, so an interrupted run
// is resumed by starting it again.
#include "tools/kiln/prewarm/prewarm.hpp"

#include <algorithm>
#include <optional>

#include "base/file.hpp"
#include "base/log.hpp"
#include "cache/place/directory.hpp"
#include "runtime/state/places.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/plan/note.hpp"
#include "tools/kiln/plan/run.hpp"
#include "tools/kiln/plan/tuned_device.hpp"
#include "tools/kiln/prewarm/gpus.hpp"
#include "tools/kiln/prewarm/missed.hpp"
#include "tools/kiln/prewarm/report.hpp"
#include "tools/kiln/prewarm/room.hpp"
#include "tools/kiln/prewarm/trace.hpp"
#include "tools/kiln/store/entries.hpp"
#include "tools/kiln/store/tier/transfer.hpp"
#include "tools/kiln/store/view.hpp"

namespace kiln::cli {
namespace {

struct PrewarmArguments {
  std::vector<std::string> plans;
  std::string layer, memory, trace, device, gpus;
  int jobs = 0;
  bool keep_going = false, check = false, strict = false, remote = false, missed = false;
};

constexpr const char* kHelp =
    "A plan is [[prewarm]] tables with template, arch (if not --arch) and the parameters' values:\n"
    "H = 4096, H = [4096, 8192], H = { from = 1024, to = 8192, step = 1024 } or\n"
    "{ from = 64, to = 4096, times = 2 }; lists multiply. A trace is the file that processes under\n"
    "KILN_RECORD=FILE wrote: what they asked for. FILE.templates beside it joins the template path.\n"
    "--arch may be a list: --arch sm_80,sm_90a. Rows of a plan that name an arch keep it.\n"
    "GPUs (B200) and generations (blackwell, hopper, ada, ampere) may be in it. Each row then gets the\n"
    "fewest images that serve all of them, as far as its template says which instructions it needs.\n"
    "--check counts what a GPU gets: an image for another arch that the GPU runs covers a row, too.\n"
    "--check --gpus B200,B300 says for each GPU which images of the cache or layer would serve it.\n"
    "--layer DIR fills a directory for machines that name it in KILN_CACHE_LAYERS. All users may read it\n"
    "(0755, files 0644). It gets every kernel of the plan, also kernels that the cache holds already. A DIR\n"
    "that cannot be written is an error.\n"
    "--device NAME takes what 'kiln tune' chose on a device of that name, also without a GPU. A layer gets\n"
    "the choices that were used. The rows of a trace carry the tuned choices of the machine that wrote\n"
    "them. Such a choice is stored for the device when there is none yet. In a layer, which needs\n"
    "--device NAME for this, a choice of a trace wins over an existing one.\n"
    "--remote also writes all kernels of the plan to the fleet's tier (KILN_REMOTE), signed with\n"
    "KILN_REMOTE_SIGN, even if they were not compiled now. --missed adds the kernels that nodes asked the\n"
    "tier for and did not get. With --check, --remote lists what the tier does not have.\n"
    "KILN_MODE does not matter: prewarm fills caches, so it compiles in mode sealed, too.\n"
    "'kiln report' draws the last run that compiled something.\n"
    "Ctrl-C lets running compiles finish, and a second one stops at once. Run the same command again to\n"
    "compile the rest.\n"
    "Exit status: 0 all there, 1 failed, 2 usage or a mistake in a plan, 3 some failed under\n"
    "--keep-going, are not cached, were evicted again by the end of the run or are not in the tier, 5 the\n"
    "tier is down (with --strict), 130 interrupted.";

int exit_status(const PrewarmResult& result, const PlanRoom& room) {
  if (result.interrupted) return kInterrupted;
  const std::size_t bad = result.failed() + result.uncached;
  if (bad == 0) return room.evicted == 0 ? kDone : kPartly;
  return result.keep_going && result.succeeded() > result.uncached ? kPartly : kFailed;
}

/// Uses DIR as the only store. `share` makes DIR readable for everybody; it is called even after
/// a failed run.
class LayerUnderWork {
 public:
  LayerUnderWork(runtime::Core& core, const std::string& directory)
      : core_(core), store_(runtime::create_layer(directory)) {
    core.state().stores.use_only(store_);
  }
  /// Also uses tuned choices of the configured places; choices that the plan takes are copied into the layer.
  void look_for_choices(const runtime::Config& config) {
    const runtime::Places places = view_places(config).places;
    std::vector<std::shared_ptr<cache::Store>> stores;
    for (const auto& store : {places.writable, places.readable})
      if (store) stores.push_back(store);
    for (auto& layer : runtime::open_layers(config)) stores.push_back(std::move(layer));
    stores.push_back(store_);  // last, because an earlier run may have put choices there
    core_.choices().use_only(std::move(stores));
  }
  void share() const {
    core_.path().flush();
    cache::share_layer(store_->directory());
  }

 private:
  runtime::Core& core_;
  std::shared_ptr<cache::Store> store_;
};

/// Stores the recorded choices. A layer also gets the choices that were taken from other stores.
void put_choices(runtime::Core& core, const PrewarmPlan& plan, bool is_layer) {
  const auto store = core.state().stores.writable();
  for (const PlannedChoice& choice : plan.choices) {
    auto record = choice.record;
    if (!record && is_layer) record = core.choices().record(choice.key);
    if (!record) continue;
    const cache::PutResult put = store->put(*record, store->put_wait(), cache::Existing::replaced);
    if (put.put != cache::Put::stored && put.put != cache::Put::present)
      throw Error(Errc::io, "the tuned choice of " + choice.label + " could not be written into '" +
                                store->directory() + "': " + put.detail);
  }
}

/// Returns false, with a message on stderr, when the timeline cannot be written. The run's results
/// are reported anyway.
bool wrote_trace(const std::string& path, const NotedRun& run) {
  if (path.empty()) return true;
  try {
    write_output(path, trace_text(run));
    return true;
  } catch (const Error& error) {
    std::fprintf(stderr, "kiln: error: the timeline could not be written: %s\n", error.what());
    return false;
  }
}

/// Pushes all results, whichever step served them, because the tier shall have all.
Pushed push_results(runtime::Core& core, const PrewarmResult& result, bool quiet) {
  const PoliteInterrupt interrupt;  // the report says how many are left
  std::vector<Key> keys;
  for (const TaskResult& task : result.tasks)
    if (task.state == TaskResult::State::done && task.unpublishable.empty()) keys.push_back(task.key);
  const auto stores = core.state().stores.asked();
  Pushed out = push_entries(
      *core.path().fleet().tier(), keys,
      [&](const Key& key) {
        return read_first(stores, [&](cache::Store& store) {
          return store.peek(key, base::Deadline::after(std::chrono::seconds(10)));
        });
      },
      quiet);
  if (out.fault) base::warn("the fleet's tier: " + out.fault.text);
  return out;
}

int check_tier(Context& context, const PrewarmPlan& plan, bool strict) {
  const auto tier = configured_tier(context);
  std::vector<std::pair<Key, std::string>> texts;
  for (const PlannedTask& task : plan.tasks) {
    const auto made = context.service().core().path().key_of(source::instantiate(task.origin, task.resolved));
    texts.emplace_back(made.key, made.text);
  }
  FirstFault fault;
  const std::vector<bool> covered = covered_by(*tier, texts, fault);
  warn_of(fault, *tier);
  std::vector<std::optional<base::Arch>> serving;
  for (std::size_t i = 0; i < covered.size(); ++i)
    serving.push_back(covered[i] ? std::optional(plan.tasks[i].resolved.arch) : std::nullopt);
  const int status = report_coverage(context, plan, serving);
  return !fault ? status : remote_down(strict, kPartly);
}

int prewarm(Context& context, const PrewarmArguments& arguments) {
  defer_closed_pipe();
  if (!arguments.trace.empty()) check_trace_file(arguments.trace);
  if (arguments.strict && arguments.check && !arguments.remote)
    throw Error(Errc::invalid_argument,
                "--strict cannot be combined with --check, except for the fleet's tier (--remote)");
  context.jobs = arguments.jobs;
  context.compile_memory = arguments.memory;
  std::vector<std::string> plans = arguments.plans;
  context.template_path = template_path_of(plans, context.template_path);
  runtime::Service& service = context.service();
  std::optional<MissedRows> missed;
  if (arguments.remote && !arguments.check) writable_tier(context);  // fails before hours of work
  if (arguments.missed) {
    missed.emplace(context, *configured_tier(context));
    if (missed->found() || plans.empty()) plans.push_back(missed->file());
  }
  std::optional<LayerUnderWork> layer;
  if (arguments.layer.empty() && arguments.check) {
    service.core().state().stores.use_places(
        view_places(service.config()).places);  // a check creates nothing
  }
  if (!arguments.layer.empty()) {
    if (arguments.check)
      service.core().state().stores.use_only(
          runtime::open_layer(base::absolute(arguments.layer).value_or(arguments.layer)));
    else
      layer.emplace(service.core(), arguments.layer);
  }
  // A layer must not depend on choices of this machine, unless --device asks for them.
  if (layer && !arguments.device.empty()) layer->look_for_choices(service.config());
  const std::vector<GpuNamed> gpus = parse_gpus(arguments.gpus);
  if (!gpus.empty() && !context.arch.empty())
    throw Error(Errc::invalid_argument, "--gpus names the GPUs, so --arch cannot stand beside it");
  TargetGpus targets = context.target_gpus();
  if (!gpus.empty()) targets = {.archs = {}, .devices = {}, .instead_of_rows = true};
  for (const GpuNamed& gpu : gpus)
    if (const base::Arch own(gpu.capability);
        std::find(targets.archs.begin(), targets.archs.end(), own) == targets.archs.end())
      targets.archs.push_back(own);
  if (!arguments.device.empty() && !targets.devices.empty())
    throw Error(Errc::invalid_argument,
                "--device takes what was tuned on one device, and --arch names GPUs whose images may be for "
                "several; give the architecture of that device, such as --arch sm_103a");
  const PrewarmPlan plan = make_plan(context, plans, targets,
                                     {arguments.device, arguments.layer.empty(), !arguments.layer.empty()});
  if (plan.without_device > 0 && layer)
    base::warn(counted(plan.without_device, "row was", "rows were") +
               " tuned where the trace was written; without --device NAME the layer gets the kernels and no "
               "tuned choices");
  for (const std::string& ignored : plan.ignored) base::warn(ignored);
  if (!gpus.empty()) return report_gpus(context, plan, gpus);
  if (arguments.check && arguments.remote) return check_tier(context, plan, arguments.strict);
  if (arguments.check) return report_coverage(context, plan, check_coverage(service.core(), plan));
  if (!service.core().state().stores.writable())
    throw Error(Errc::io,
                "no directory can hold the cache, so prewarm cannot store kernels; set KILN_CACHE_DIR");
  warn_without_room(service.core(), plan);
  const PrewarmResult result =
      run_prewarm(service.core(), plan,
                  {service.core().path().compiler().workers().jobs(), arguments.keep_going, !context.json,
                   arguments.strict ? compile::Strictness::strict : compile::Strictness::declared});
  const cache::Store& store = *service.core().state().stores.writable();
  const NotedRun run = noted_run(plan, result);
  put_choices(service.core(), plan, layer.has_value());
  if (layer)
    layer->share();  // without a note, so that an image's content does not depend on when it was made
  else if (store.writable())
    write_note(store.directory(), run);
  const bool traced = wrote_trace(arguments.trace, run);
  std::optional<Pushed> pushed;
  if (arguments.remote) pushed = push_results(service.core(), result, context.json);
  if (missed && !result.interrupted && pushed && pushed->covers_all()) missed->forget(plan, result);
  const PlanRoom room = look_for_room(service.core(), result);
  report_prewarm(context, plan, result, room, store.directory(), pushed);
  const int status = exit_status(result, room);
  if (status != kDone) return status;
  if (PoliteInterrupt::requested()) return kInterrupted;
  if (pushed && pushed->fault.down) return remote_down(arguments.strict, kPartly);
  if (missed && missed->fault().down) return remote_down(arguments.strict, kPartly);
  if (pushed && !pushed->covers_all()) return kPartly;
  if (missed && missed->fault()) return kPartly;
  return traced ? kDone : kFailed;
}

}  // namespace

void add_prewarm(Command app, Context& context) {
  const auto arguments = std::make_shared<PrewarmArguments>();
  const Command sub = context.add_command(app, "prewarm", "Compile everything a plan asks for, ahead of time",
                                          [&context, arguments] { return prewarm(context, *arguments); });
  sub.option("plans", arguments->plans, "Plan files and traces; default: what the templates' manifests list")
      .type_name("PLAN.toml");
  sub.option("-j,--jobs", arguments->jobs, "Compiles at once; default: KILN_JOBS, else one per core")
      .type_name("N")
      .range(1, 1024);
  sub.option("--memory", arguments->memory,
             "Memory for all compiles together, such as 4G; default: KILN_COMPILE_MEMORY, else the machine's")
      .type_name("BYTES");
  sub.flag("--keep-going", arguments->keep_going, "Go on after a failure");
  const Option check =
      sub.flag("--check", arguments->check, "Compile nothing; list what is not in the cache (exit status 3)");
  sub.flag("--strict", arguments->strict,
           "A kernel that breaks [limits], or that ptxas warns of, is a failure; so is a tier that is down");
  const Option remote =
      sub.flag("--remote", arguments->remote,
               "Also fill the fleet's tier; with --check: list what the tier does not have");
  sub.flag("--missed", arguments->missed, "Also compile what nodes asked the tier for and did not get")
      .needs(remote)
      .excludes(check);
  sub.option("--layer", arguments->layer, "Write into this layer instead of the cache")
      .not_empty()
      .type_name("DIR");
  sub.option("--gpus", arguments->gpus,
             "With --check: list which images would serve these GPUs, such as B200,hopper,sm_89")
      .not_empty()
      .type_name("LIST")
      .needs(check)
      .excludes(remote);
  add_device_option(sub, arguments->device);
  sub.option("--trace", arguments->trace,
             "Write the run's timeline to FILE, for chrome://tracing or Perfetto")
      .type_name("FILE")
      .excludes(check);
  sub.footer(kHelp);
}

}  // namespace kiln::cli
