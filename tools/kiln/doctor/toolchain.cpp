// Probes of the compiler and of the loader.
#include "tools/kiln/doctor/toolchain.hpp"
#include "tools/kiln/doctor/cache.hpp"
#include "tools/kiln/doctor/driver.hpp"
#include "tools/kiln/doctor/empty_kernel.hpp"
#include "tools/kiln/doctor/versions.hpp"

#include <memory>

#include "base/deadline.hpp"
#include "base/text.hpp"
#include "compile/pool/process.hpp"
#include "toolchain/library_identity.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/outcome.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {
namespace {

using Status = Finding::Status;

constexpr const char* kManifest = R"(format = 1
[template]
name = "kiln_doctor_empty"
source = "empty.cu"
instantiate = "kiln_doctor_empty<{N}>"
[compile]
minimal = true
[param.N]
kind = "int"
values = [1]
[launch]
grid = ["1"]
block = ["1"]
)";
constexpr const char* kSource = "template <int N> __global__ void kiln_doctor_empty() {}\n";

/// A library that was found. Without an identity it compiles, but nothing that it compiled is cached.
Finding library_finding(const std::string& name, const std::string& path, const std::string& identity) {
  const std::string text = path + " (" + toolchain::identity_text(identity) + ')';
  if (!identity.empty()) return {name, Status::ok, text};
  return {name, Status::warning, text + ": it is not an ELF file that can be read, so no kernel is cached",
          "install the library again, or set KILN_CUDA_HOME to another toolkit"};
}

void probe_libraries(const runtime::Config& config, const toolchain::Toolkit& toolkit, Findings& out) {
  const std::string install =
      "install the CUDA toolkit or the nvidia-cuda-nvrtc wheel, or set KILN_CUDA_HOME";
  const bool serves = !toolkit.has_compiler() && anything_cached(config);
  const Status lacking = serves ? Status::warning : Status::error;
  const std::string cost = serves ? "no compiler: cached kernels are served, and a miss is an error; " : "";
  const auto& [library, builtins] = toolkit.compiler;
  if (library.empty()) {
    out.push_back({"nvrtc", lacking, cost + "no libnvrtc found; looked in " + base::join(toolkit.tried, ", "),
                   install});
  } else {
    out.push_back(library_finding("nvrtc", library, toolkit.compiler_identity));
    out.push_back(builtins.empty()
                      ? Finding{"builtins", lacking, cost + "no libnvrtc-builtins beside " + library, install}
                      : library_finding("builtins", builtins, toolkit.builtins_identity));
  }
  if (toolkit.include_dirs.empty()) {
    out.push_back(
        {"headers", Status::warning,
         "no toolkit headers: templates that include vendor headers do not compile; kiln's own templates "
         "need none",
         "install the toolkit's headers (cuda-cudart-dev, or the nvidia-cuda-runtime and nvidia-cuda-cccl "
         "wheels)"});
  } else {
    out.push_back({"headers", Status::ok, base::join(toolkit.include_dirs, ", ")});
  }
}

/// Sends a request that no compiler can serve. Any answer shows that the worker starts, reads and writes.
void probe_worker(const runtime::Config& config, Findings& out) {
  const std::string executable = compile::find_worker_executable(config.get("worker"));
  if (executable.empty()) {
    out.push_back(
        {"worker", Status::warning,
         "no kiln-worker executable found (looked for " + base::join(compile::worker_candidates(), ", ") +
             "): kernels are compiled inside the calling process, which a crash of the compiler then ends",
         "install kiln-worker in libexec/kiln, or set KILN_WORKER"});
    return;
  }
  const auto start = base::Clock::now();
  std::unique_ptr<compile::WorkerProcess> worker;
  try {
    worker = compile::WorkerProcess::spawn({.executable = executable});
  } catch (const Error& error) {
    const bool configured = !config.get("worker").empty();
    out.push_back({"worker", Status::error, error.what(),
                   error.code() != Errc::no_compiler
                       ? "set TMPDIR to a writable directory: compiles run there"
                   : configured ? "set KILN_WORKER to kiln's worker, or unset it"
                                : "reinstall kiln"});
    return;
  }
  compile::WorkerRequest request;
  request.compiler.library = request.compiler.builtins = "/nonexistent/libnvrtc.so";
  request.arch = "sm_90a";
  const auto answer = worker->ask(request, base::Deadline::after(std::chrono::seconds(10)));
  const double ms = std::chrono::duration<double, std::milli>(base::Clock::now() - start).count();
  if (answer.fate == compile::WorkerProcess::Answer::Fate::answered) {
    out.push_back({"worker", Status::ok, executable + " answers in " + human_ms(ms)});
  } else {
    out.push_back({"worker", Status::error,
                   executable + " does not answer" + (answer.how.empty() ? "" : ": " + answer.how),
                   "reinstall kiln, so that the command and its worker have the same version"});
  }
}

}  // namespace

std::optional<EmptyKernel> probe_compile(Context& context, Findings& out) {
  runtime::Service& service = context.service();
  if (!service.core().state().files.toolkit().has_compiler()) return std::nullopt;
  if (!service.core().permission().compile) {
    out.push_back(
        {"compile", Status::note,
         "not tried: mode sealed (from " + service.config().setting("mode").origin + ") does not compile"});
    return std::nullopt;
  }
  try {
    const base::Arch arch = context.target_arch();
    service.catalog().add({kManifest, kSource, {}});
    const auto origin = service.catalog().open("kiln_doctor_empty");
    const std::vector<Value> values{Value(1)};
    const auto start = base::Clock::now();
    const compile::Compiled compiled = service.core().compile_alone(
        source::instantiate(origin, source::resolve(origin->manifest, values, arch)), false);
    const double ms = std::chrono::duration<double, std::milli>(base::Clock::now() - start).count();
    out.push_back({"compile", Status::ok,
                   "NVRTC " + compiled.facts.compiler_version + " compiles an empty kernel for " +
                       arch.name() + " in " + human_ms(ms) + " (" + human_bytes(compiled.image.size()) +
                       ')'});
    return EmptyKernel{compiled.image, compiled.facts.lowered_name, arch.name(),
                       compiled.facts.compiler_version};
  } catch (const Error& error) {
    out.push_back({"compile", Status::error, error.what()});
    return std::nullopt;
  }
}

void probe_toolchain(Context& context, Findings& out) {
  probe_libraries(context.service().config(), context.service().core().state().files.toolkit(), out);
  probe_worker(context.service().config(), out);
  const std::optional<EmptyKernel> kernel = probe_compile(context, out);
  if (kernel) probe_versions(context.service().core().state().files.toolkit(), *kernel, out);
  probe_driver(kernel, out);
}

}  // namespace kiln::cli
