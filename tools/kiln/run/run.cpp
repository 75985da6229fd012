// kiln run: launches on generated data, compares with the reference, and times against the roofline, in one
// size or several.
#include "tools/kiln/run/run.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>

#include "kiln/error.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/limits_report.hpp"
#include "tools/kiln/cli/progress.hpp"
#include "tools/kiln/run/report.hpp"
#include "tools/kiln/run/sizes.hpp"

namespace kiln::cli {
namespace {

struct RunFlags {
  std::string name;
  std::vector<std::string> assignments;
  bool check = false, bench = false, strict = false;
  int device = 0;
  std::uint64_t seed = 1;
};

struct Assignments {
  std::vector<NamedValue> parameters;
  std::vector<GivenList> arguments;
};

/// Splits "T=bf16 H=4096 rows=1,64" into template parameters and the rest.
Assignments split(const source::Manifest& manifest, const std::vector<std::string>& pieces) {
  Assignments out;
  for (const NamedValue& v : source::parse_assignments(pieces)) {
    const bool parameter = parameter_index(manifest, v.name) >= 0;
    if (parameter && v.value.text.find(',') != v.value.text.npos)
      throw Error(
          Errc::invalid_value,
          "parameter " + std::string(v.name) + " = '" + std::string(v.value.text) +
              "': only arguments take lists; a parameter is compiled in, so each value needs a run of "
              "its own");
    if (parameter)
      out.parameters.push_back(v);
    else
      out.arguments.push_back(parse_list(v.name, v.value.text));
  }
  return out;
}

/// The sizes of `given` by the members of a family that serve them, or all sizes where there is no family, or its
/// parameter was given.
std::vector<MemberSizes> members_of(const source::Manifest& manifest, const Assignments& given) {
  std::vector<GivenArguments> sizes = sizes_of(given.arguments);
  const auto is_member = [&](const NamedValue& v) {
    return v.name == manifest.parameters[static_cast<std::size_t>(manifest.family->parameter)].name;
  };
  if (!manifest.family || std::any_of(given.parameters.begin(), given.parameters.end(), is_member))
    return {MemberSizes{std::nullopt, std::move(sizes)}};
  return by_member(manifest, sizes);
}

/// The given parameters, and the member of a family.
std::vector<NamedValue> parameters_of(const source::Manifest& manifest, const Assignments& given,
                                      const MemberSizes& sizes) {
  std::vector<NamedValue> out = given.parameters;
  if (sizes.member) out.push_back(value_of_member(manifest, *sizes.member));
  return out;
}

/// Shows the current step on a terminal. Elsewhere it prints nothing, because the table follows soon.
class Steps {
 public:
  explicit Steps(std::size_t total) {
    if (standard_error().interactive) progress_.emplace(total, false);
  }
  void next(const std::string& what) {
    if (!progress_) return;
    if (!now_.empty()) progress_->finished(now_, "", false);
    now_ = what;
    progress_->started(now_);
  }

 private:
  std::optional<Progress> progress_;
  std::string now_;
};

/// The error that ended a run before its last size.
struct Stop {
  Errc code;
  std::string message;
};

/// The template, the device and the flags, which all runs of one command share.
struct Opened {
  Opened(Context& c, const RunFlags& f)
      : context(c),
        flags(f),
        gpu(f.device),
        kernels(c.service().open(f.name, KILN_DEVICE_CURRENT, "")),
        manifest(variant_for(kernels.origin().manifest, kernels.target().arch)),
        given(split(manifest, f.assignments)) {}

  Context& context;
  const RunFlags& flags;
  PrimaryContext gpu;
  runtime::KernelTemplate& kernels;
  const source::Manifest& manifest;
  const Assignments given;
};

/// One specialisation in the sizes that it serves.
class Run {
 public:
  Run(Opened& opened, const MemberSizes& sizes)
      : context_(opened.context),
        flags_(opened.flags),
        gpu_(opened.gpu),
        opened_(opened.kernels),
        manifest_(opened.manifest),
        given_(opened.given),
        sizes_(sizes.sizes),
        values_(source::positional(manifest_, parameters_of(manifest_, given_, sizes))),
        call_(opened_.resolve(values_)),
        resolved_(call_.resolved) {}

  /// Measures, prints for people, and fills `json`. Returns the exit status.
  int operator()(Json& json) {
    measure();
    int exit = kDone;
    const runtime::LoadedKernel& kernel = opened_.get(values_, {});
    const auto broken =
        compile::broken_limits(manifest_.limits, kernel.image().facts,
                               flags_.strict ? compile::Strictness::strict : compile::Strictness::declared);
    json = json_head(kernel, broken);
    if (!context_.json) print_all(kernel, broken);
    if (flags_.check && !manifest_.reference) exit = kPartly;
    for (const SizeResult& result : results_) {
      if (std::any_of(result.check.begin(), result.check.end(), [](const auto& r) { return !r.ok; }))
        exit = kFailed;
    }
    if (flags_.strict && !broken.empty()) {
      exit = kFailed;
      json["error"] = {{"code", kLimitsBroken}, {"message", say_broken(kernel.image().facts, broken)}};
    }
    if (stop_) {
      exit = exit_of(stop_->code);
      json["error"] = {{"code", name_of(stop_->code)}, {"message", stop_->message}};
      std::fflush(stdout);
      std::fprintf(stderr, "kiln: error: %s\n", stop_->message.c_str());
    }
    return exit;
  }
  bool stopped() const { return stop_.has_value(); }

 private:
  bool checks() const { return flags_.check && manifest_.reference; }

  /// Fills results_. An error after the first result ends the run and is kept in stop_.
  void measure() {
    const int each = (checks() ? 1 : 0) + (flags_.bench ? 1 : 0);
    Steps steps(1 + sizes_.size() * static_cast<std::size_t>(std::max(each, 1)));
    // Errors that need no image are found before anything is compiled.
    std::vector<compile::ExportFact> exports;
    if (!manifest_.exports.empty()) exports = opened_.get(values_, {}).image().facts.exports;
    std::deque<RunCase> cases;  // a deque, because its elements do not move
    for (const GivenArguments& size : sizes_)
      cases.emplace_back(context_.service(), gpu_, opened_, resolved_, size, exports);
    steps.next("compiling " + resolved_.specialization.to_string());
    opened_.get(values_, {});
    if (checks()) reference();
    for (RunCase& one : cases) {
      try {
        results_.push_back(measure_one(one, steps));
      } catch (const Error& error) {
        if (results_.empty()) throw;
        stop_ = Stop{error.code(), text_of(one.values().texts()) + ": " + error.what()};
        return;
      }
    }
  }

  SizeResult measure_one(RunCase& one, Steps& steps) {
    SizeResult out{one.values().texts(), {}, {}};
    const std::string at = " with " + text_of(out.values);
    const runtime::LoadedKernel& kernel = opened_.get(values_, {});
    if (checks()) {
      steps.next("checking" + at);
      out.check = check(one, kernel, reference(), flags_.seed);
    }
    if (flags_.bench) {
      steps.next("timing" + at);
      out.bench = bench(one, kernel, flags_.seed);
    }
    if (flags_.check || flags_.bench) return out;
    steps.next("launching" + at);
    const BufferSet buffers = one.make_buffers(flags_.seed);
    one.launch(kernel, RunCase::addresses_of(buffers), nullptr);
    gpu_.driver().check(gpu_.driver().cuCtxSynchronize(), "cuCtxSynchronize",
                        "running " + resolved_.specialization.to_string());
    return out;
  }

  const runtime::LoadedKernel& reference() {
    runtime::GetRequest request;
    request.which = source::Which::reference;
    return opened_.get(values_, request);
  }

  static std::string outcome_of(const runtime::LoadedKernel& kernel) {
    constexpr const char* outcomes[] = {"memory", "disk", "layer", "remote", "compiled", "waited"};
    return outcomes[static_cast<int>(kernel.outcome())];
  }

  /// How the kernel was obtained, such as "from disk".
  static std::string origin_of(const runtime::LoadedKernel& kernel) {
    const std::string outcome = outcome_of(kernel);
    if (outcome == "compiled") return "compiled now";
    return outcome == "waited" ? "compiled by another process" : "from " + outcome;
  }

  Json json_head(const runtime::LoadedKernel& kernel, const std::vector<compile::BrokenLimit>& broken) const {
    Json json{{"schema", context_.schema()},
              {"template", manifest_.name},
              {"params", json_of(resolved_.specialization.parameters)},
              {"arch", resolved_.arch.name()},
              {"gpu", gpu_.facts().name},
              {"key", kernel.image().key.hex()},
              {"outcome", outcome_of(kernel)},
              {"performance_warnings", kernel.image().facts.performance_warnings},
              {"limits_broken", limits_json(broken)},
              {"sizes", Json::array()}};
    if (!call_.tuned.empty()) json["tuned"] = json_of(call_.tuned);
    for (const SizeResult& result : results_) {
      json["sizes"].push_back(json_of(result));
      if (flags_.check && !manifest_.reference) json["sizes"].back()["check"] = nullptr;
    }
    // A single result is also copied into the object itself, as it was before lists of sizes existed.
    if (results_.size() == 1 && !stop_) json.update(json["sizes"].front());
    return json;
  }

  void print_all(const runtime::LoadedKernel& kernel, const std::vector<compile::BrokenLimit>& broken) const {
    print(paint(resolved_.specialization.to_string(), Style::bold, standard_output()) + "\n");
    print_definition("", "on " + gpu_.facts().name + ", " + resolved_.arch.name() + ", " + origin_of(kernel),
                     2);
    if (!call_.tuned.empty()) print_definition("tuned", text_of(call_.tuned), 13);
    print_limits(kernel.image().facts, broken, 13);
    std::vector<std::string> given;
    for (const GivenList& list : given_.arguments) given.push_back(list.name);
    print_sizes(results_, given);
    if (flags_.check && !manifest_.reference)
      print_paragraph("check: the template has no [reference], so there is nothing to compare with");
  }

  Context& context_;
  const RunFlags& flags_;
  PrimaryContext& gpu_;
  runtime::KernelTemplate& opened_;
  const source::Manifest& manifest_;
  const Assignments& given_;
  const std::vector<GivenArguments>& sizes_;
  const std::vector<Value> values_;
  const runtime::TunedCall call_;
  const source::Resolved& resolved_;
  std::vector<SizeResult> results_;
  std::optional<Stop> stop_;
};

/// Runs the kernel, or each member of a family that the sizes pick, one after the other.
int run(Context& context, const RunFlags& flags) {
  Opened opened(context, flags);
  const std::vector<MemberSizes> members = members_of(opened.manifest, opened.given);
  Json all{{"schema", context.schema()}, {"template", opened.manifest.name}, {"members", Json::array()}};
  int exit = kDone;
  for (const MemberSizes& sizes : members) {
    Run one(opened, sizes);
    Json json;
    const int status = one(json);
    if (members.size() == 1)
      all = std::move(json);
    else
      all["members"].push_back(std::move(json));
    // A failure outweighs a missing reference, and an error that ended the run outweighs both.
    if (status != kDone && (exit == kDone || status == kFailed || one.stopped())) exit = status;
    if (one.stopped()) break;
  }
  if (context.json) print_json(all);
  return exit;
}

}  // namespace

void add_run(Command app, Context& context) {
  auto flags = std::make_shared<RunFlags>();
  const Command command =
      context.add_command(app, "run", "Launch a specialisation on this GPU, check it and time it",
                          [&context, flags] { return run(context, *flags); });
  command.option("template", flags->name, "Template to run").required();
  command.option(
      "values", flags->assignments,
      "Parameters as P=V; scalar arguments as rows=64, or in several sizes as rows=1,64,4096. Sizes pick "
      "the members of a family");
  command.flag("--check", flags->check, "Compare with the template's [reference], a naive kernel in double");
  command.flag("--bench", flags->bench,
               "Time the kernel with a cold L2 cache, beside a kernel that only moves the same bytes");
  command.flag("--strict", flags->strict,
               "Fail when the kernel breaks [limits] or ptxas warns of its performance");
  command.option("--device", flags->device, "Ordinal of the GPU").capture_default_str();
  command.option("--seed", flags->seed, "Seed of the generated inputs").capture_default_str();
  command.footer(
      "Example: kiln run rms_norm T=bf16 H=4096 rows=1,64,4096 --check --bench\n"
      "Exit status: 0 done, 1 failed, wrong results (--check) or a broken limit (--strict), 2 usage,\n"
      "3 --check was given, but the template has no [reference].");
}

}  // namespace kiln::cli
