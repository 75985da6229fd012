#include "tools/kiln/cli/context.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/log.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"
#include "library/work_lists.hpp"
#include "toolchain/driver.hpp"
#include "toolchain/gpus.hpp"
#include "tools/kiln/cli/command_tree.hpp"

namespace kiln::cli {
namespace {

std::optional<toolchain::DeviceFacts> first_gpu() {
  const toolchain::Driver* driver = toolchain::Driver::get();
  int count = 0;
  if (!driver || driver->cuInit(0) != toolchain::CUDA_SUCCESS) return std::nullopt;
  if (driver->cuDeviceGetCount(&count) != toolchain::CUDA_SUCCESS || count < 1) return std::nullopt;
  try {
    return toolchain::device_facts(*driver, 0);
  } catch (const Error& error) {
    base::debug(std::string("the properties of device 0 cannot be read: ") + error.what());
    return std::nullopt;
  }
}

/// A bad flag value is reported under the flag's name; the configuration would report it under
/// its setting's name.
void check_size_flag(const char* flag, const std::string& value) {
  if (value.empty() || runtime::parse_size(value)) return;
  throw Error(Errc::invalid_argument, std::string(flag) + ": '" + value +
                                          "' is no size; expected bytes, or a number with K, M, G or T " +
                                          "(powers of 1024), such as 512M or 5G; more than 0");
}

base::Arch parsed_arch(const std::string& text) {
  try {
    return base::Arch::parse(text);
  } catch (const Error& error) {
    throw Error(error.code(), "--arch: " + std::string(error.what()) +
                                  "; or the name of a GPU or generation: " + toolchain::known_gpus());
  }
}

/// A directory of a flag must exist now. A directory that the environment names may be created later.
void check_template_path_flag(const std::string& path) {
  for (const std::string& directory : base::split(path, ':')) {
    std::error_code error;
    if (!std::filesystem::is_directory(directory, error))
      throw Error(Errc::invalid_argument, "--template-path: '" + directory + "' is no directory (" +
                                              (error ? error.message() : "it is a file") + ')');
  }
}

}  // namespace

std::vector<base::Arch> archs_named(const std::string& list) {
  std::vector<base::Arch> out;
  const auto add = [&](base::Arch named) {
    if (std::find(out.begin(), out.end(), named) == out.end()) out.push_back(named);
  };
  for (const std::string& text : base::split(list, ',')) {
    const std::vector<int> devices = toolchain::capabilities_of(text);
    for (const int device : devices) add(base::Arch(device));
    if (devices.empty()) add(parsed_arch(text));
  }
  return out;
}

Command Context::add_command(Command app, const std::string& name, const std::string& summary,
                             std::function<int()> run) {
  const Command sub = app.subcommand(name, summary);
  add_common_flags(sub);
  const std::string full = app.is_root() ? name : app.name() + ' ' + name;
  sub.callback([this, full, run = std::move(run)] { command = full, action = run; });
  return sub;
}

void Context::add_common_flags(Command app) {
  constexpr const char* group = kCommonOptions;
  app.option("--cache-dir", cache_dir, "Directory of the cache (KILN_CACHE_DIR)")
      .type_name("DIR")
      .group(group);
  app.option("--template-path", template_path, "Template directories, colon-separated (KILN_TEMPLATE_PATH)")
      .type_name("DIRS")
      .group(group);
  app.option("--arch", arch,
             "Such as 90, sm_90a, H100 or hopper; default: KILN_ARCH, else this GPU's, else sm_90a")
      .not_empty()
      .type_name("ARCH")
      .group(group);
  app.option("--log-level", log_level,
             "trace, debug, info, warning or warn, error or off; default: KILN_LOG, else warning")
      .type_name("LEVEL")
      .one_of({"trace", "debug", "info", "warning", "warn", "error", "off"})
      .group(group);
  app.flag("--json", json, "One JSON object on stdout").group(group);
}

void Context::add_hidden_command(const std::string& name, std::optional<std::size_t> words,
                                 std::function<int(const std::vector<std::string>&)> run) {
  hidden_.push_back({name, words, std::move(run)});
}

std::optional<int> Context::run_hidden(const std::vector<std::string>& arguments) const {
  for (const HiddenCommand& hidden : hidden_) {
    if (arguments.empty() || arguments.front() != hidden.name) continue;
    if (!hidden.words || *hidden.words == arguments.size() - 1)
      return hidden.run({arguments.begin() + 1, arguments.end()});
  }
  return std::nullopt;
}

std::string Context::schema() const {
  std::string name = command;
  std::replace(name.begin(), name.end(), ' ', '-');
  return "kiln." + name + "/1";
}

Options Context::options() const {
  if (command != "doctor") check_template_path_flag(template_path);  // doctor reports on each of them
  check_size_flag("--max-size", max_size);
  check_size_flag("--memory", compile_memory);
  Options out;
  out.cache_dir = cache_dir;
  out.template_path = template_path;
  out.jobs = jobs;
  out.cache_max_size = max_size;
  out.compile_memory = compile_memory;
  out.toolchain = toolchain;
  return out;
}

runtime::Config Context::config() const {
  // The level is set twice: resolving applies the configured level, and resolving may itself warn.
  if (!log_level.empty()) base::set_log_level(log_level);
  runtime::Config config = runtime::Config::resolve(options());
  if (!log_level.empty()) base::set_log_level(log_level);
  return config;
}

runtime::Service& Context::service() {
  if (!service_) {
    if (!log_level.empty()) base::set_log_level(log_level);
    service_ = std::make_unique<runtime::Service>(options(), runtime::default_memo_file(), runtime::Events{},
                                                  library::work_lists());
    if (!log_level.empty()) base::set_log_level(log_level);
  }
  return *service_;
}

base::Arch Context::target_arch() {
  if (!arch.empty()) {
    const std::vector<base::Arch> named = archs_named(arch);
    if (named.size() == 1) return named.front();
    std::string names;
    for (const base::Arch each : named) names += (names.empty() ? "" : ", ") + each.name();
    throw Error(Errc::invalid_argument, "--arch: '" + arch + "' names " + std::to_string(named.size()) +
                                            " architectures, and this command takes one" +
                                            (names.empty() ? "" : "; give one of " + names));
  }
  const std::string configured = service_ ? service_->config().get("arch") : config().get("arch");
  if (!configured.empty()) return base::Arch::parse(configured);
  return this_gpu() ? this_gpu()->arch : base::Arch::parse("sm_90a");
}

const std::optional<toolchain::DeviceFacts>& Context::this_gpu() {
  if (!gpu_) gpu_ = first_gpu();
  return *gpu_;
}

std::string Context::target_device(const std::string& said, base::Arch wanted) {
  if (!said.empty()) return said;
  return this_gpu() && this_gpu()->arch == wanted ? this_gpu()->name : "";
}

std::vector<base::Arch> Context::target_archs() {
  std::vector<base::Arch> out = archs_named(arch);
  if (out.empty()) out.push_back(target_arch());
  return out;
}

TargetGpus Context::target_gpus() {
  TargetGpus out;
  for (const std::string& text : base::split(arch, ',')) {
    const std::vector<int> devices = toolchain::capabilities_of(text);
    out.devices.insert(out.devices.end(), devices.begin(), devices.end());
    if (devices.empty()) out.archs.push_back(parsed_arch(text));
  }
  if (out.archs.empty() && out.devices.empty()) out.archs.push_back(target_arch());
  return out;
}

}  // namespace kiln::cli
