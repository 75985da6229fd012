#include "tools/kiln/caches/profile/facts.hpp"

#include <gnu/libc-version.h>
#include <sys/utsname.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"
#include "toolchain/driver.hpp"
#include "tools/kiln/caches/profile/distributions.hpp"
#include "tools/kiln/cli/child_process.hpp"
#include "tools/kiln/cli/context.hpp"

namespace kiln::cli {
namespace {

constexpr std::string_view kFirstLine = "kiln-dir 1\n";

/// The archs of all GPUs that this process sees; --arch or KILN_ARCH where it sees none.
std::string gpus(Context& context) {
  const toolchain::Driver* const driver = toolchain::Driver::get();
  int count = 0;
  std::set<std::string> archs;
  if (context.arch.empty() && driver && driver->cuInit(0) == toolchain::CUDA_SUCCESS &&
      driver->cuDeviceGetCount(&count) == toolchain::CUDA_SUCCESS) {
    for (int device = 0; device < count; ++device) {
      try {
        archs.insert(toolchain::device_facts(*driver, device).arch.name());
      } catch (const Error& error) {
        base::debug("device " + std::to_string(device) + ": " + error.what());
      }
    }
  }
  if (archs.empty()) return context.target_arch().name();
  return base::join({archs.begin(), archs.end()}, ",");
}

/// The first number with dots in the kernel module's line: "580.65.06".
std::string driver_version() {
  for (const std::string& word : base::split(base::read_proc("/proc/driver/nvidia/version"), ' ')) {
    const bool is_version =
        word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos;
    if (is_version) return word;
  }
  return "none";
}

/// CUDA_VERSION in the cuda.h of the toolkit that JIT compilers use: CUDA_HOME, CUDA_PATH, nvcc of PATH, and
/// /usr/local/cuda.
std::string cuda_version() {
  std::vector<std::string> roots;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const auto set = base::environment(variable); !set.empty()) roots.emplace_back(set);
  if (const std::string nvcc = find_program("nvcc", {}); !nvcc.empty())
    roots.push_back(base::directory_of(base::directory_of(nvcc)));
  roots.emplace_back("/usr/local/cuda");
  constexpr std::string_view define = "#define CUDA_VERSION ";
  for (const std::string& root : roots) {
    const auto header = base::read_file(root + "/include/cuda.h", std::size_t{4} << 20);
    if (!header) continue;
    const auto at = header->bytes.find(define);
    if (at == std::string::npos) continue;
    const int version = std::atoi(header->bytes.c_str() + at + define.size());
    return std::to_string(version / 1000) + '.' + std::to_string(version % 1000 / 10);
  }
  return "none";
}

void add_host(Facts& out) {
  utsname system{};
  ::uname(&system);
  out.emplace_back("machine", system.machine);
  out.emplace_back("libc", std::string("glibc ") + ::gnu_get_libc_version());
}

std::string without_line_ends(std::string text) {
  std::replace(text.begin(), text.end(), '\n', '?');
  return text;
}

}  // namespace

Facts facts_of(const Profile& profile, const std::string& root, const std::string& python, Context& context) {
  Facts out;
  const auto wants = [&](std::string_view fact) {
    return std::find(profile.facts.begin(), profile.facts.end(), fact) != profile.facts.end();
  };
  if (wants("gpu")) out.emplace_back("gpu", gpus(context));
  if (wants("driver")) out.emplace_back("driver", driver_version());
  if (wants("cuda")) out.emplace_back("cuda", cuda_version());
  if (wants("host")) add_host(out);
  if (wants("python") || !profile.distributions.empty()) {
    const PythonPackages packages(python);
    if (wants("python")) out.emplace_back("python", packages.python_version());
    for (const std::string& name : profile.distributions)
      out.emplace_back("dist." + name, without_line_ends(packages.version_of(name)));
  }
  if (profile.embeds_paths) out.emplace_back("root", without_line_ends(root));
  return out;
}

Facts facts_of_any(Context& context) {
  Facts out{{"gpu", gpus(context)}, {"driver", driver_version()}};
  add_host(out);
  return out;
}

std::string text_of(const Facts& facts) {
  std::string out(kFirstLine);
  for (const auto& [name, value] : facts) out += name + ' ' + value + '\n';
  return out;
}

Facts facts_in(std::string_view compatibility) {
  Facts out;
  if (!compatibility.starts_with(kFirstLine)) return out;
  compatibility.remove_prefix(kFirstLine.size());
  for (const std::string& line : base::split(compatibility, '\n')) {
    const auto space = line.find(' ');
    if (space != std::string::npos) out.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return out;
}

std::vector<FactDifference> differences(const Facts& recorded, const Facts& now) {
  std::map<std::string, FactDifference> all;
  for (const auto& [name, value] : recorded) all[name].recorded = value;
  for (const auto& [name, value] : now) all[name].now = value;
  std::vector<FactDifference> out;
  for (auto& [name, difference] : all) {
    if (difference.recorded == difference.now) continue;
    difference.fact = name;
    out.push_back(std::move(difference));
  }
  return out;
}

}  // namespace kiln::cli
