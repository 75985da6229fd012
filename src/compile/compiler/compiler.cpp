#include "compile/compiler/compiler.hpp"

#include <algorithm>
#include <csignal>
#include <ctime>

#include "base/nvtx.hpp"
#include "base/text.hpp"
#include "compile/advice/advice.hpp"
#include "compile/backend/backend.hpp"
#include "compile/backend/confinement.hpp"
#include "compile/compiler/header_reuse.hpp"
#include "instantiate/overlay.hpp"
#include "kiln/error.hpp"
#include "toolchain/cubin.hpp"

namespace kiln::compile {
namespace {

constexpr std::size_t kLogLimit = 16 << 10;

std::string clipped(std::string text) {
  if (text.size() > kLogLimit) {
    text.resize(kLogLimit);
    text += "\n[cut: the compiler's log is longer]";
  }
  return text;
}

std::string what(const CompileJob& job) {
  return job.unit.resolved.specialization.to_string() + " (" + job.unit.unit + ") for " +
         job.unit.resolved.arch.name();
}

WorkerRequest make_request(const CompileJob& job, const toolchain::Toolkit& toolkit) {
  WorkerRequest request;
  request.compiler = toolkit.compiler;
  request.program_name = kProgramDirectory + job.unit.unit + ".cu";
  source::Overlay overlay = source::overlay_of(job.unit, job.closure);
  request.source = std::move(overlay.source) + job.unit.epilogue();
  request.overlay = std::move(overlay.files);
  request.beside = std::move(overlay.beside);
  request.replace = job.unit.compile.replace;
  for (const source::Root& root : job.closure.roots) request.roots.emplace_back(root.name, root.path);
  request.arch = job.unit.resolved.arch.name();
  request.options = job.unit.options;
  request.options.insert(request.options.end(), kiln_options().begin(), kiln_options().end());
  request.random_seed = job.key.key.hex();
  request.name_expressions = job.unit.name_expressions();
  request.linked = linked_from(job.closure);
  request.trace_headers = job.closure.computed || job.closure.toolkit_computed;
  request.want_ptx = job.want_ptx || job.unit.resolved.arch.features == base::Features::ptx;
  return request;
}

/// The compiler's options, one per line. The include directories are left out: they belong to the private
/// folder and say nothing.
std::string options_of(const CompileJob& job) {
  std::string out = "--gpu-architecture=" + job.unit.resolved.arch.compiler_name();
  for (const auto* list : {&job.unit.options, &kiln_options()}) {
    for (const std::string& option : *list) out += '\n' + option;
  }
  return out;
}

AdviceSubject advised(const CompileJob& job) {
  return {job.unit.options, job.unit.resolved.arch.name(), job.unit.name_expression,
          job.unit.compile.host_headers, job.unit.compile.cut_host_code};
}

std::string hint_line(const std::string& hint) { return hint.empty() ? hint : "\nhint: " + hint; }

/// Puts the name of the source file into the log. The compiler reads the source as UNIT.cu, which is no
/// file that people have.
std::string with_source_name(const CompileJob& job, std::string log) {
  const std::string known = job.unit.unit + ".cu(", own = job.unit.source_name + '(';
  if (job.unit.source_name.empty() || known == own) return log;
  for (std::size_t at = 0; (at = log.find(known, at)) != std::string::npos;) {
    const bool begins_line = at == 0 || log[at - 1] == '\n';
    if (begins_line) log.replace(at, known.size(), own);
    at += begins_line ? own.size() : known.size();
  }
  return log;
}

template <class Thrown = CompileError>
[[noreturn]] void fail(const CompileJob& job, Errc code, const std::string& why,
                       const std::string& answered) {
  const std::string log = with_source_name(job, answered);
  std::string message = "cannot compile " + what(job) + ": " + why;
  const std::string shown = clipped(backend().diagnostics(log));
  if (!shown.empty()) message += '\n' + shown;
  for (const std::string& hint : advice_for(log, advised(job))) message += hint_line(hint);
  throw Thrown(code, message, job.unit.resolved.specialization.to_string(), options_of(job), clipped(log));
}

void check_answer(const CompileJob& job, const WorkerProcess::Answer& answer, double limit_s) {
  using Fate = WorkerProcess::Answer::Fate;
  switch (answer.fate) {
    case Fate::answered:
      break;
    case Fate::timed_out:
      fail(job, Errc::compile_timeout,
           "killed at its deadline of " + base::decimal(limit_s) + " s (KILN_COMPILE_DEADLINE)", {});
    case Fate::died:
      // The worker was killed by its limit of CPU time or from outside. Other signals come from the
      // code that it compiled.
      if (answer.signal == SIGKILL || answer.signal == SIGXCPU)
        fail<LocalFault>(job, Errc::compile_crashed, "the compile worker died: " + answer.how, {});
      fail(
          job, Errc::compile_crashed,
          "the compile worker died: " + answer.how + hint_line(advice_for_crash(answer.signal, advised(job))),
          {});
    case Fate::out_of_memory:
      fail<LocalFault>(
          job, Errc::compile_crashed,
          "the compiler ran out of memory (the machine's, the cgroup's or KILN_COMPILE_MEMORY): its "
          "worker was " +
              answer.how,
          {});
    case Fate::cancelled:
      throw Error(Errc::deadline, "the service was destroyed before " + what(job) + " was compiled");
  }
  const WorkerResponse& r = answer.response;
  switch (r.status) {
    case WorkerResponse::Status::ok:
      return;
    case WorkerResponse::Status::compile_failed:
      fail(job, Errc::compile_failed, "the compiler refused it", r.log);
    case WorkerResponse::Status::out_of_memory:
      fail<LocalFault>(job, Errc::compile_crashed, "the compiler ran out of memory", r.log);
    case WorkerResponse::Status::unsupported_arch:
      throw Error(Errc::unsupported_arch, "cannot compile " + what(job) + ": " + r.message);
    case WorkerResponse::Status::no_compiler:
      throw Error(Errc::no_compiler, "cannot compile " + what(job) + ": " + r.message);
    case WorkerResponse::Status::failed:
      fail(job, Errc::compile_crashed, r.message, r.log);
  }
}

EntryFacts entry_facts(const CompileJob& job, const WorkerResponse& r, const toolchain::CubinFacts& cubin,
                       const source::NamedText& entry, const std::string& lowered_name) {
  const toolchain::CubinKernel* kernel = cubin.kernel(lowered_name);
  if (!kernel) {
    fail(job, Errc::compile_failed,
         "'" + entry.cpp + "' is no __global__ function: the image has no entry point '" + lowered_name + "'",
         r.log);
  }
  EntryFacts out;
  out.entry = entry.name;
  out.name_expression = entry.cpp;
  out.lowered_name = lowered_name;
  for (const toolchain::CubinArgument& a : kernel->arguments) out.arguments.push_back({a.ordinal, a.size});
  out.registers = kernel->registers;
  out.stack_bytes = kernel->stack_bytes;
  out.shared_bytes = kernel->shared_bytes;
  out.max_threads = kernel->max_threads;
  out.required_block = kernel->required_block;
  out.cluster = kernel->cluster;
  PtxasReport report = backend().ptxas_report(r.log, lowered_name);
  out.spill_store_bytes = report.spill_store_bytes;
  out.spill_load_bytes = report.spill_load_bytes;
  if (out.spill_bytes() == 0) {
    out.spill_store_bytes = kernel->spill_store_bytes;  // for a compiler whose log does not report spills
    out.spill_load_bytes = kernel->spill_load_bytes;
  }
  out.performance_warnings = std::move(report.performance_warnings);
  return out;
}

Facts gather_facts(const CompileJob& job, const WorkerProcess::Answer& answer) {
  const WorkerResponse& r = answer.response;
  toolchain::CubinFacts cubin;
  try {
    cubin = toolchain::read_cubin({reinterpret_cast<const std::byte*>(r.image.data()), r.image.size()});
  } catch (const Error& error) {
    fail(job, Errc::compile_crashed, std::string("the compile worker's answer is no image: ") + error.what(),
         r.log);
  }
  const source::Instantiation& unit = job.unit;
  if (r.lowered_names.size() != unit.name_expressions().size())
    fail(job, Errc::compile_crashed, "the compile worker answered with a wrong number of lowered names",
         r.log);
  auto lowered = r.lowered_names.begin();
  Facts facts;
  static_cast<EntryFacts&>(facts) =
      // The manifest's name of this entry point is in no key.
      entry_facts(job, r, cubin, {{}, unit.name_expression}, *lowered++);
  for (const source::NamedText& entry : unit.entries)
    facts.entries.push_back(entry_facts(job, r, cubin, entry, *lowered++));
  for (const source::NamedText& global : unit.globals) {
    const toolchain::CubinVariable* variable = cubin.variable(*lowered);
    if (!variable) {
      fail(job, Errc::compile_failed,
           "[[global]] '" + global.name + "': the image has no variable '" + global.cpp + "' (" + *lowered +
               "); it must be a __device__ or __constant__ one that the source defines",
           r.log);
    }
    facts.globals.push_back({global.name, *lowered++, variable->bytes});
  }
  for (std::size_t i = 0; i < unit.exports.size(); ++i) {
    const toolchain::CubinVariable* variable = cubin.variable(source::export_symbol(i));
    if (!variable || !variable->value)
      fail(job, Errc::compile_failed, "[export] '" + unit.exports[i].name + "' is not in the image", r.log);
    facts.exports.push_back({unit.exports[i].name, *variable->value});
  }
  facts.unit = unit.unit;
  facts.parameters = unit.resolved.specialization.parameters;
  facts.arch = unit.resolved.arch.name();
  facts.compiler_version = r.compiler_version;
  facts.frontend_ms = r.frontend_ms;
  facts.nvvm_ms = r.nvvm_ms;
  facts.ptxas_ms = r.ptxas_ms;
  facts.compile_ms = r.total_ms;
  facts.peak_memory = answer.peak_memory;
  facts.created_s = std::time(nullptr);
  facts.project_header_through_toolkit = job.key.project_header_through_toolkit;
  facts.log = clipped(backend().diagnostics(r.log));
  return facts;
}

/// Checks after the compile that no file of the closure changed and that the image contains no directory of
/// this host (docs/internals/key.md, "What is compiled is what was hashed"). A computed include must have read
/// only files that are in the key.
std::string unpublishable_afterwards(const CompileJob& job, const WorkerResponse& r) {
  if (const auto changed = job.closure.changed())
    return "'" + *changed + "' changed while it was being compiled";
  std::vector<std::string> host_paths{r.private_directory};
  for (const source::Root& root : job.closure.roots) host_paths.push_back(root.path);
  for (const std::string& path : host_paths) {
    if (path.size() > 4 && (r.image.find(path) != std::string::npos || r.ptx.find(path) != std::string::npos))
      return "the image contains the directory '" + path + "'";
  }
  if (job.closure.computed || job.closure.toolkit_computed) {
    if (const auto read = read_but_not_hashed(job.closure, r.headers_read)) {
      return "a computed include read '" + *read +
             "', which is not part of the key: name it in [compile] extra_includes";
    }
    if (r.headers_read.empty() && !job.closure.files.empty()) {
      return "a computed include is used, and this NVRTC does not report which files it read";
    }
  }
  return {};
}

}  // namespace

std::string unpublishable_beforehand(const source::Closure& closure, const toolchain::Toolkit& toolkit) {
  if (toolkit.compiler_identity.empty() || toolkit.builtins_identity.empty()) {
    return "the compiler cannot be identified: '" +
           (toolkit.compiler_identity.empty() ? toolkit.compiler.library : toolkit.compiler.builtins) +
           "' is not an ELF file that can be read";
  }
  if (!closure.computed_probes.empty()) {
    const std::string& file = closure.computed_probes.front();
    return (file.empty() ? std::string("the source") : "'" + file + "'") +
           " gives __has_include a computed name, so the key cannot cover its result";
  }
  if (closure.date_time.empty()) return {};
  const std::string& file = closure.date_time.front();
  return (file.empty() ? std::string("the source") : "'" + file + "'") +
         " mentions __DATE__, __TIME__ or __TIMESTAMP__";
}

Compiled compile(const CompileJob& job, const toolchain::Toolkit& toolkit, WorkerPool& pool,
                 const Demand& demand, PrecompiledHeaders* headers) {
  if (!toolkit.has_compiler()) {
    throw Error(Errc::no_compiler,
                "cannot compile " + what(job) + ": no NVRTC found; looked in " +
                    base::join(toolkit.tried, ", ") +
                    ". Install the CUDA toolkit or the nvidia-cuda-nvrtc wheel, or set KILN_CUDA_HOME");
  }
  const base::NvtxRange range([&] { return "kiln compile " + job.unit.resolved.specialization.to_string(); });
  // The proof and use of a header, and a compile that is repeated without one, share one time limit.
  Demand rest = demand;
  const Ask ask = [&](const WorkerRequest& request) {
    WorkerProcess::Answer answer = pool.run(request, rest);
    if (rest.compile_limit != base::Clock::duration::max())
      rest.compile_limit = std::max(base::Clock::duration::zero(), rest.compile_limit - answer.ran);
    return answer;
  };
  WorkerProcess::Answer answer =
      headers && job.same_closure
          ? ask_with_headers(make_request(job, toolkit),
                             {job.closure, toolkit, job.same_closure, demand.now() == Urgency::ahead},
                             *headers, ask)
          : ask(make_request(job, toolkit));
  if (answer.fate == WorkerProcess::Answer::Fate::answered && backend().refuses_trace(answer.response))
    answer = ask_without_trace(make_request(job, toolkit), ask);
  check_answer(job, answer, std::chrono::duration<double>(demand.compile_limit).count());
  Compiled out;
  out.facts = gather_facts(job, answer);
  out.unpublishable = unpublishable_beforehand(job.closure, toolkit);
  if (out.unpublishable.empty()) out.unpublishable = unpublishable_afterwards(job, answer.response);
  out.ptx = std::move(answer.response.ptx);
  // The machine code that came with the PTX has said what the facts need.
  const bool is_ptx = job.unit.resolved.arch.features == base::Features::ptx;
  out.image = is_ptx ? out.ptx : std::move(answer.response.image);
  out.peak_memory = answer.peak_memory;
  return out;
}

}  // namespace kiln::compile
