// The probes of `kiln doctor`: each does what kiln itself does, and says what it found.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "context.hpp"
#include "toolchain/locate.hpp"

namespace kiln::cli {

struct Finding {
  enum class Status { ok, note, warning, error };
  std::string name;
  Status status = Status::ok;
  std::string text;
  std::string fix{};  ///< what to do; empty when nothing is to be done
};
using Findings = std::vector<Finding>;

/// Libraries, headers, worker, a compile, driver, GPU, loading the image.
void probe_toolchain(Context& context, Findings& out);
/// Template path and every manifest.
void probe_templates(Context& context, Findings& out);
/// Directory, filesystem, damage, a put and a get, the store's lock, clock, layers. The user's entries are
/// not touched.
void probe_cache(Context& context, Findings& out);
/// The store or a layer has an entry, which is served without a compiler, too.
bool anything_cached(const runtime::Config& config) noexcept;
/// Cores, memory, how many compiles at once; settings that nobody knows.
void probe_machine(Context& context, Findings& out);

/// The fleet's tier, if one is configured.
void probe_remote(Context& context, Findings& out);
/// Without passwords.
std::string shown_value(const runtime::Setting& setting);

/// Two processes at the gate of a store that is made in `directory`: a put waits for the other's lock, and
/// gets it when the other is killed.
void probe_gate(const std::string& directory, Findings& out);
/// The same for the flight lock of one key, in /dev/shm, and whether others see who holds it.
void probe_flight(Findings& out);
void probe_temporary(Findings& out);

/// The image of the empty kernel, for the driver's probe.
struct EmptyKernel {
  std::string image, lowered_name, arch;
  std::string nvrtc_version;  ///< "13.0"
};
std::optional<EmptyKernel> probe_compile(Context& context, Findings& out);
/// The parts of the toolkit against each other.
void probe_versions(const toolchain::Toolkit& toolkit, const EmptyKernel& kernel, Findings& out);
void probe_driver(const std::optional<EmptyKernel>& kernel, Findings& out);

}  // namespace kiln::cli
