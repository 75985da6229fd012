// Probes of the machine's resources for compiles, and of settings that kiln does not know.
#include "tools/kiln/doctor/machine.hpp"

#include <cstdint>

#include "base/file.hpp"
#include "compile/pool/machine.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {
namespace {

using Status = Finding::Status;

/// Memory of a compile that includes vendor headers. A compile of a slim template takes
/// a tenth (docs/internals/workers.md).
constexpr std::uint64_t kPerCompile = std::uint64_t{512} << 20;

Finding machine_finding(runtime::Core& core) {
  const compile::Machine machine;
  const std::uint64_t configured = core.config().compile_memory_bytes();
  const std::uint64_t available = configured ? configured : machine.available_memory();
  const auto jobs = static_cast<std::uint64_t>(core.path().compiler().workers().jobs());
  Finding out{"machine", Status::ok,
              counted(static_cast<std::uint64_t>(machine.cores()), "core") + ", " +
                  human_bytes(machine.available_memory()) + " free of " +
                  human_bytes(machine.total_memory()) + "; " + counted(jobs, "compile") + " at once" +
                  (configured ? " in " + human_bytes(configured) : "")};
  if (available < kPerCompile) {
    out.status = Status::warning;
    out.text += ": a compile with vendor headers may need more memory than there is, and then fails";
    out.fix = configured ? "raise KILN_COMPILE_MEMORY" : "give this container more memory";
  } else if (available / jobs < kPerCompile) {
    out.status = Status::note;
    out.text += ", fewer when compiles need more than their share of the memory";
  }
  return out;
}

}  // namespace

void probe_machine(Context& context, Findings& out) {
  out.push_back(machine_finding(context.service().core()));
  for (const std::string& unknown : context.service().config().unknown())
    out.push_back({"settings", Status::warning, unknown, "correct or remove it"});
}

}  // namespace kiln::cli
