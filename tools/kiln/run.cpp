// kiln run: launch on generated data, compare with the reference, time against the roofline.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "commands.hpp"
#include "context.hpp"
#include "kiln/error.hpp"
#include "limits_report.hpp"
#include "output.hpp"
#include "run_check.hpp"

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
  GivenArguments arguments;
};

/// "T=bf16 H=4096 rows=64": the template's parameters, and the rest.
Assignments split(const source::Manifest& manifest, const std::vector<std::string>& pieces) {
  Assignments out;
  for (const NamedValue& v : source::parse_assignments(pieces)) {
    if (manifest.parameter_index(v.name) >= 0)
      out.parameters.push_back(v);
    else
      out.arguments[std::string(v.name)] = std::string(v.value.text);
  }
  return out;
}

void print_check(const std::vector<CheckedArgument>& results) {
  const Terminal terminal = standard_output();
  for (const CheckedArgument& r : results) {
    char line[256];
    std::snprintf(line, sizeof line,
                  "  check  %-10s %s  relative RMS %.2e (allowed %.1e)  max error %.3g  %llu elements  ",
                  r.name.c_str(), r.dtype.c_str(), r.relative_rms, r.tolerance, r.max_abs,
                  static_cast<unsigned long long>(r.elements));
    std::string verdict = paint(r.ok ? "ok" : "WRONG", r.ok ? Style::green : Style::red, terminal);
    if (r.mismatched_nonfinite)
      verdict += "  " + std::to_string(r.mismatched_nonfinite) + " NaN or Inf where the reference has none";
    if (!r.canaries) verdict += "  written outside the buffer";
    print(line + verdict + "\n");
  }
}

void print_bench(const BenchResult& b) {
  char line[256];
  std::snprintf(
      line, sizeof line,
      "  bench  %.2f us  %.3f TB/s  %.1f %% of a stream of the same bytes (%.2f us; read %s, write %s)\n",
      b.us, b.terabytes_per_s(), 100 * b.share(), b.stream_us,
      human_bytes(static_cast<std::uint64_t>(b.read_bytes)).c_str(),
      human_bytes(static_cast<std::uint64_t>(b.write_bytes)).c_str());
  print(line);
}

Json json_check(const CheckedArgument& r) {
  return {{"argument", r.name},
          {"dtype", r.dtype},
          {"relative_rms", r.relative_rms},
          {"max_abs", r.max_abs},
          {"tolerance", r.tolerance},
          {"elements", r.elements},
          {"mismatched_nonfinite", r.mismatched_nonfinite},
          {"canaries", r.canaries},
          {"ok", r.ok}};
}

Json json_bench(const BenchResult& b) {
  return {{"us", b.us},
          {"stream_us", b.stream_us},
          {"share", b.share()},
          {"tb_per_s", b.terabytes_per_s()},
          {"read_bytes", b.read_bytes},
          {"write_bytes", b.write_bytes},
          {"flops", b.flops},
          {"launches", b.launches},
          {"sets", b.sets},
          {"replays", b.replays}};
}

int run(Context& context, const RunFlags& flags) {
  PrimaryContext gpu(flags.device);
  runtime::Service& service = context.service();
  runtime::KernelTemplate& opened = service.open(flags.name, KILN_DEVICE_CURRENT, "");
  const source::Manifest& manifest = opened.origin().manifest.on(opened.target().arch);
  const Assignments given = split(manifest, flags.assignments);
  const std::vector<Value> values = source::positional(manifest, given.parameters);
  const runtime::TunedCall call = opened.resolve(values);
  const source::Resolved& resolved = call.resolved;
  // What needs no image is looked at before there is one.
  std::vector<compile::ExportFact> exports;
  if (!manifest.exports.empty()) exports = opened.get(values, {}).image().facts.exports;
  RunCase run_case(service, gpu, opened, resolved, given.arguments, exports);
  const runtime::LoadedKernel& kernel = opened.get(values, {});
  constexpr const char* outcomes[] = {"memory", "disk", "layer", "remote", "compiled", "waited"};
  const std::string outcome = outcomes[static_cast<int>(kernel.outcome())];
  const auto broken =
      compile::broken_limits(manifest.limits, kernel.image().facts,
                             flags.strict ? compile::Strictness::strict : compile::Strictness::declared);

  Json json{{"schema", context.schema()},
            {"template", manifest.name},
            {"params", json_of(resolved.specialization.parameters)},
            {"arch", resolved.arch.name()},
            {"gpu", gpu.facts().name},
            {"key", kernel.image().key.hex()},
            {"outcome", outcome},
            {"arguments", run_case.describe()},
            {"performance_warnings", kernel.image().facts.performance_warnings},
            {"limits_broken", limits_json(broken)}};
  if (!call.tuned.empty()) json["tuned"] = json_of(call.tuned);
  if (!context.json) {
    print(paint(resolved.specialization.to_string(), Style::bold, standard_output()) + "\n");
    print("  " + run_case.describe() + "  on " + gpu.facts().name + ", " + resolved.arch.name() + ", from " +
          outcome + "\n");
    if (!call.tuned.empty()) print_definition("tuned", text_of(call.tuned), 13);
    print_limits(kernel.image().facts, broken, 13);
  }
  int exit = kDone;
  if (flags.check && !manifest.reference) {
    exit = kPartly;
    json["check"] = nullptr;
    if (!context.json) print("  check  the template has no [reference]: nothing to compare with\n");
  } else if (flags.check) {
    runtime::GetRequest reference_request;
    reference_request.which = source::Which::reference;
    const runtime::LoadedKernel& reference = opened.get(values, reference_request);
    const auto results = check(run_case, kernel, reference, flags.seed);
    if (!std::all_of(results.begin(), results.end(), [](const CheckedArgument& r) { return r.ok; }))
      exit = kFailed;
    json["check"] = Json::array();
    for (const CheckedArgument& r : results) json["check"].push_back(json_check(r));
    if (!context.json) print_check(results);
  }
  if (flags.bench) {
    const BenchResult b = bench(run_case, kernel, flags.seed);
    json["bench"] = json_bench(b);
    if (!context.json) print_bench(b);
  }
  if (!flags.check && !flags.bench) {
    const BufferSet buffers = run_case.make_buffers(flags.seed);
    run_case.launch(kernel, RunCase::addresses_of(buffers), nullptr);
    gpu.driver().check(gpu.driver().cuCtxSynchronize(), "cuCtxSynchronize",
                       "running " + resolved.specialization.to_string());
    if (!context.json) print("  launched\n");
  }
  if (flags.strict && !broken.empty()) {
    exit = kFailed;
    json["error"] = {{"code", kLimitsBroken}, {"message", say_broken(kernel.image().facts, broken)}};
  }
  if (context.json) print_json(json);
  return exit;
}

}  // namespace

void add_run(CLI::App& app, Context& context) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command =
      context.add_command(app, "run", "Launch a specialisation on this GPU, check it and time it",
                          [&context, flags] { return run(context, *flags); });
  command->add_option("template", flags->name, "Template to run")->required();
  command->add_option("values", flags->assignments, "P=V for parameters, and for scalar arguments (rows=64)");
  command->add_flag("--check", flags->check,
                    "Compare with the template's [reference], a naive kernel in double");
  command->add_flag("--bench", flags->bench, "Time it L2-cold beside a stream kernel of the same bytes");
  command->add_flag("--strict", flags->strict,
                    "Fail when it breaks [limits] or ptxas warns of its performance");
  command->add_option("--device", flags->device, "Ordinal of the GPU")->capture_default_str();
  command->add_option("--seed", flags->seed, "Seed of the generated inputs")->capture_default_str();
}

}  // namespace kiln::cli
