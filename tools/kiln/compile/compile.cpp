// kiln compile: gets one specialisation through the lookup path, without a GPU.
#include "tools/kiln/compile/compile.hpp"

#include <unistd.h>

#include "base/deadline.hpp"
#include "base/text.hpp"
#include "instantiate/instantiate.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/cli/limits_report.hpp"
#include "tools/kiln/cli/outcome.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/plan/tuned_device.hpp"
#include "tools/kiln/store/disassemble.hpp"
#include "tools/kiln/store/key/fields.hpp"

namespace kiln::cli {
namespace {

struct CompileArguments {
  std::string name, output, emit_list, device;
  std::vector<std::string> values, emit;
  int repeat = 1;
  bool strict = false;
};

struct Ask {
  runtime::Obtained obtained;
  double total_ms = 0;
  std::vector<compile::BrokenLimit> broken;
};

double since(base::Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(base::Clock::now() - start).count();
}

Json ask_json(const Ask& ask, const std::string& name) {
  const compile::Facts& f = ask.obtained.image->facts;
  Json out;
  out["key"] = ask.obtained.image->key.hex();
  out["outcome"] = name_of(ask.obtained.outcome);
  out["template"] = name;
  out["arch"] = f.arch;
  out["params"] = json_of(f.parameters);
  out["cubin_bytes"] = ask.obtained.image->bytes.size();
  out["registers"] = f.registers;
  out["spill_bytes"] = f.spill_store_bytes + f.spill_load_bytes;
  out["shared_bytes"] = f.shared_bytes;
  out["compile_ms"] = ask.obtained.outcome == Outcome::compiled ? f.compile_ms : 0.0;
  out["total_ms"] = ask.total_ms;
  out["recorded_compile_ms"] = f.compile_ms;
  out["name_expression"] = f.name_expression;
  out["lowered_name"] = f.lowered_name;
  out["nvrtc"] = f.compiler_version;
  out["unpublishable"] =
      ask.obtained.unpublishable.empty() ? Json(nullptr) : Json(ask.obtained.unpublishable);
  out["performance_warnings"] = f.performance_warnings;
  out["limits_broken"] = limits_json(ask.broken);
  add_symbols(out, f);
  return out;
}

/// "compiled in 79 ms", "from disk in 0.30 ms"
std::string told(const Ask& ask) {
  const Terminal terminal = standard_output();
  const std::string time = " in " + human_ms(ask.total_ms);
  if (ask.obtained.outcome == Outcome::compiled) return paint("compiled", Style::yellow, terminal) + time;
  if (ask.obtained.outcome == Outcome::waited)
    return paint("compiled by another process", Style::green, terminal) + time;
  return paint("from " + std::string(name_of(ask.obtained.outcome)), Style::green, terminal) + time;
}

void print_ask(const Ask& ask) {
  const runtime::StoredImage& image = *ask.obtained.image;
  const compile::Facts& f = image.facts;
  const Terminal terminal = standard_output();
  print(paint(f.unit, Style::bold, terminal) + " for " + f.arch + ": " + told(ask) + '\n');
  print_definition("params", text_of(f.parameters), 13);
  print_definition("key", image.key.hex(), 13);
  print_definition("image", human_bytes(image.bytes.size()), 13);
  print_definition("resources", resources_of(f), 13);
  if (ask.obtained.outcome == Outcome::compiled) print_definition("compile", phases_of(f), 13);
  print_symbols(f, 13);
  print_limits(f, ask.broken, 13);
  if (!ask.obtained.unpublishable.empty()) print_definition("not cached", ask.obtained.unpublishable, 13);
}

/// Refuses flags that can never work, before anything is compiled.
void check(const Context& context, const CompileArguments& arguments) {
  for (const std::string& kind : arguments.emit) {
    if (kind != "cubin" && kind != "ptx" && kind != "sass") {
      throw Error(Errc::invalid_argument,
                  "--emit " + kind + ": expected cubin, ptx, sass or several of them separated by commas");
    }
  }
  if (arguments.output.empty()) return;
  if (arguments.emit.size() > 1)
    throw Error(Errc::invalid_argument,
                "-o names one file, but --emit asks for " + std::to_string(arguments.emit.size()));
  if (arguments.output != "-") return;
  if (context.json) throw Error(Errc::invalid_argument, "-o - and --json cannot both write to stdout");
  if ((arguments.emit.empty() || arguments.emit[0] == "cubin") && ::isatty(STDOUT_FILENO)) {
    throw Error(Errc::invalid_argument, "a cubin is not text and is not written to a terminal; use -o FILE");
  }
}

std::string ptx_of(runtime::Core& core, const source::Instantiation& unit) {
  std::string text = core.compile_alone(unit, true).ptx;
  text.erase(text.find_last_not_of('\0') + 1);  // NVRTC's size includes the terminating NUL
  return text;
}

Json emit(Context& context, const CompileArguments& arguments, const source::Instantiation& unit,
          const runtime::StoredImage& image) {
  std::vector<std::string> kinds = arguments.emit;
  if (kinds.empty() && !arguments.output.empty()) kinds = {"cubin"};
  runtime::Core& core = context.service().core();
  Json files = Json::object();
  for (const std::string& kind : kinds) {
    const std::string path = arguments.output.empty() ? arguments.name + '.' + kind : arguments.output;
    if (kind == "cubin") write_output(path, image.bytes);
    if (kind == "ptx") write_output(path, ptx_of(core, unit));
    if (kind == "sass")
      write_output(path,
                   disassemble(image.bytes, core.state().files.toolkit(), core.config().get("cuda_home")));
    files[kind] = path;
  }
  return files;
}

int run(Context& context, CompileArguments arguments) {
  defer_closed_pipe();
  arguments.emit = base::split(arguments.emit_list, ',');
  check(context, arguments);
  const base::Arch arch = context.target_arch();
  if (has_tune(context.service().catalog().open(arguments.name)->manifest))
    context.service().scopes().tune_for(context.target_device(arguments.device, arch));
  runtime::KernelTemplate& opened = context.service().open(arguments.name, KILN_DEVICE_NONE, arch.name());
  const source::Manifest& manifest = opened.origin().manifest;
  const std::vector<Value> values = source::positional(manifest, source::parse_assignments(arguments.values));

  std::vector<Ask> asks;
  for (int i = 0; i < arguments.repeat; ++i) {
    const auto start = base::Clock::now();
    Ask ask{opened.compile(values), 0, {}};
    ask.total_ms = since(start);
    ask.broken = compile::broken_limits(
        manifest.limits, ask.obtained.image->facts,
        arguments.strict ? compile::Strictness::strict : compile::Strictness::declared);
    asks.push_back(std::move(ask));
  }
  const runtime::TunedCall call = opened.resolve(values);
  const source::Instantiation unit = source::instantiate(opened.shared_origin(), call.resolved);
  const Json files = emit(context, arguments, unit, *asks.back().obtained.image);
  context.service().core().path().flush();  // waits until the record is stored, or warns

  const Ask& last = asks.back();
  const bool refused = arguments.strict && !last.broken.empty();
  const int status = refused ? kFailed : kDone;
  if (arguments.output == "-") {
    if (refused) say_broken(last.obtained.image->facts, last.broken);
    return status;
  }
  if (context.json) {
    Json out{{"schema", context.schema()}};
    if (asks.size() == 1)
      out.update(ask_json(asks.front(), arguments.name));
    else
      for (const Ask& ask : asks) out["results"].push_back(ask_json(ask, arguments.name));
    if (!call.tuned.empty()) out["tuned"] = json_of(call.tuned);
    if (!files.empty()) out["files"] = files;
    if (refused)
      out["error"] = {{"code", kLimitsBroken},
                      {"message", say_broken(last.obtained.image->facts, last.broken)}};
    print_json(out);
    return status;
  }
  print_ask(asks.front());
  if (!call.tuned.empty()) print_definition("tuned", text_of(call.tuned), 13);
  for (std::size_t i = 1; i < asks.size(); ++i) {
    print("  again: " + told(asks[i]) + '\n');
  }
  for (const auto& [kind, path] : files.items()) print_definition("wrote", path.get<std::string>(), 13);
  if (refused) say_broken(last.obtained.image->facts, last.broken);
  return status;
}

}  // namespace

void add_compile(Command app, Context& context) {
  const auto arguments = std::make_shared<CompileArguments>();
  const Command sub =
      context.add_command(app, "compile", "Compile one specialisation, or find it in the cache",
                          [&context, arguments] { return run(context, *arguments); });
  sub.option("template", arguments->name, "Name of the template").type_name("NAME").required();
  sub.option("params", arguments->values, "Parameters of the template; others take their defaults")
      .type_name("P=V");
  sub.option("-o,--output", arguments->output,
             "Write the image, or the output of --emit, to FILE; - is stdout")
      .type_name("FILE");
  sub.option("--emit", arguments->emit_list, "Write cubin, ptx or sass; without -o to files NAME.KIND")
      .type_name("KIND,...");
  sub.option("--repeat", arguments->repeat, "Ask for the specialisation N times in this process; default: 1")
      .type_name("N")
      .range(1, 1000000);
  sub.flag("--strict", arguments->strict,
           "Fail when the kernel breaks [limits] or ptxas warns of its performance");
  add_device_option(sub, arguments->device);
  sub.footer(
      "Example: kiln compile rms_norm T=bf16 H=4096 --arch sm_90a -o rms_norm.cubin\n"
      "Exit status: 0 done, 1 failed (with --strict also a broken limit), 2 usage.");
}

}  // namespace kiln::cli
