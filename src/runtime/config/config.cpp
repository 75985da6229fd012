#include "runtime/config/config.hpp"
#include "runtime/config/file.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/arch.hpp"
#include "base/file.hpp"
#include "base/installation.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"

extern char** environ;

namespace kiln::runtime {
namespace {

namespace fs = std::filesystem;

struct Known {
  const char* name;
  const char* default_value;
  const char* doc;
  const std::string Options::*option;
};

/// Longer than any compile, and far from where a deadline's clock overflows (292 years).
constexpr double kLongestCompile_s = 1e7;

constexpr Known kKnown[] = {
    {"cache_dir", "", "directory of the writable store", &Options::cache_dir},
    {"cache_layers", "", "read-only stores that are searched before the writable one, colon-separated",
     &Options::cache_layers},
    {"cache_max_size", "5G", "largest size of the writable store in bytes; K, M, G and T are powers of 1024",
     &Options::cache_max_size},
    {"template_path", "", "directories of templates, in addition to the installed ones, colon-separated",
     &Options::template_path},
    {"include_path", "", "directories searched for includes after the template's own, colon-separated",
     &Options::include_path},
    {"cuda_home", "", "directory of the CUDA toolkit, with NVRTC and its headers", &Options::cuda_home},
    {"toolchain", "",
     "other toolchains whose records may be served: own (none), any, or a toolchain's first hex "
     "digits; empty: any where kiln cannot or may not compile",
     &Options::toolchain},
    {"arch", "",
     "architecture to compile for when neither a device nor an arch is given; empty: that of this machine's "
     "GPU (the kiln command), or sm_90a",
     &Options::arch},
    {"mode", "jit", "jit, warn or sealed; when it is not set: jit, and sealed after a seal", nullptr},
    {"jobs", "0", "number of compile workers at once; 0: one per core", nullptr},
    {"compile_deadline", "600", "seconds after which a compile is killed", nullptr},
    {"compile_memory", "",
     "bytes of memory that the compiles of one process may take together; K, M, G and T are powers of 1024; "
     "empty: decided from the machine's memory",
     &Options::compile_memory},
    {"record", "",
     "file to which kiln appends each specialisation that was asked for and not ready, for kiln prewarm",
     &Options::record},
    {"worker", "", "the compile worker's executable", &Options::worker},
    {"remote", "", "servers of the fleet's tier, comma-separated: redis://, rediss:// or redis+unix://",
     &Options::remote},
    {"remote_mode", "locked",
     "locked: this node only reads the tier; fleet: it also writes, and one node compiles for all",
     &Options::remote_mode},
    {"remote_key", "", "public keys or their files, comma-separated: only entries signed with them are used",
     &Options::remote_key},
    {"remote_sign", "", "file of the secret key that signs the entries that this node writes to the tier",
     &Options::remote_sign},
    {"remote_sign_password", "",
     "file whose first line is the password of the key that KILN_REMOTE_SIGN names", nullptr},
    {"remote_budget", "60", "seconds that this node waits for a compile of another node", nullptr},
    {"remote_sealed", "never", "never or ask: whether get() in mode sealed may ask the tier before the seal",
     &Options::remote_sealed},
    {"log", "warning", "least level of messages to log: trace, debug, info, warning, error or off", nullptr},
    {"debug", "0", "1: a launch with a work list of another launch traps, and the context is lost", nullptr},
    {"libcuda", "", "the driver library, for tests", nullptr},
};

std::string environment_name(std::string_view name) {
  std::string out = "KILN_";
  for (const char c : name) out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return out;
}

/// The text of a setting in Options. Empty: Options do not set it.
std::string option_value(const Options& options, const Known& known) {
  if (known.option) return options.*known.option;
  const std::string_view name = known.name;
  if (name == "mode" && options.mode != Mode::by_default) {
    return options.mode == Mode::jit ? "jit" : options.mode == Mode::warn ? "warn" : "sealed";
  }
  if (name == "jobs" && options.jobs > 0) return std::to_string(options.jobs);
  if (name == "compile_deadline" && options.compile_deadline_s > 0)
    return std::to_string(options.compile_deadline_s);
  if (name == "remote_budget" && options.remote_budget_s > 0) return std::to_string(options.remote_budget_s);
  return {};
}

std::string config_path() {
  if (const char* xdg = std::getenv("XDG_CONFIG_HOME"); xdg && *xdg == '/')
    return std::string(xdg) + "/kiln/config.toml";
  if (const char* home = std::getenv("HOME"); home && *home == '/')
    return std::string(home) + "/.config/kiln/config.toml";
  return {};
}

/// Variables of the Python package, of modules that it exports, and of `kiln caches`.
constexpr std::array<std::string_view, 9> kOthers = {
    "KILN_CACHES",        "KILN_CACHES_PROFILES", "KILN_CACHES_REPORT",
    "KILN_CACHES_SEALED", "KILN_CACHES_WAIT",     "KILN_ENGINES_OFF",
    "KILN_LIBRARY",       "KILN_SGLANG",          "KILN_VLLM"};

/// A warning for each KILN_* variable that is not in `names`.
std::vector<std::string> unknown_environment(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (char** variable = environ; variable && *variable; ++variable) {
    const std::string_view text = *variable;
    if (!text.starts_with("KILN_")) continue;
    const std::string name(text.substr(0, text.find('=')));
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    if (name.starts_with("KILN_TEST_") || name.starts_with("KILN_FAKE_")) continue;  // the test suite's own
    if (name.starts_with("KILN_TORCH_") || std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end())
      continue;
    out.push_back("environment variable " + name + " is not known to this version of kiln" +
                  base::did_you_mean(name, names));
  }
  return out;
}

[[noreturn]] void bad(const Setting& s, const std::string& allowed) {
  throw Error(Errc::invalid_argument,
              s.name + " = '" + s.value + "' (from " + s.origin + "): expected " + allowed);
}

double number_of(const Setting& s, const std::string& allowed) {
  double value = 0;
  const auto [end, error] = std::from_chars(s.value.data(), s.value.data() + s.value.size(), value);
  if (error != std::errc{} || end != s.value.data() + s.value.size() || !std::isfinite(value) || value < 0)
    bad(s, allowed);
  return value;
}

}  // namespace

std::optional<std::uint64_t> parse_size(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || !std::isfinite(value)) return std::nullopt;
  std::string unit;
  for (const char* c = end; c != text.data() + text.size(); ++c)
    if (*c != ' ' || !unit.empty()) unit += static_cast<char>(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
  if (unit.ends_with("IB") && unit.size() == 3) unit.resize(1);
  constexpr std::string_view units = "KMGT";
  const auto power = unit.empty() ? 0 : unit.size() == 1 ? units.find(unit) + 1 : 0;
  if (!unit.empty() && (power < 1 || power > units.size())) return std::nullopt;
  value = std::ldexp(value, static_cast<int>(10 * power));
  constexpr double largest = 1ull << 60;
  if (value < 1 || value > largest) return std::nullopt;
  return static_cast<std::uint64_t>(value);
}

namespace {

std::vector<std::string> template_candidates() {
  return base::candidates_of(
      {.below = "share/kiln/templates", .configured = KILN_INSTALL_DATADIR "/kiln/templates", .beside = {}});
}

/// True for the directory that holds kiln's own headers. No other directory of templates has them.
bool holds_own_headers(const std::string& directory) {
  std::error_code error;
  return fs::is_directory(directory + "/kiln", error) && fs::is_directory(directory + "/shim", error);
}

std::string find_installed_templates() {
  std::error_code error;
  for (std::string& candidate : template_candidates()) {
    if (fs::is_directory(candidate, error)) return std::move(candidate);
  }
  return {};
}

}  // namespace

Config Config::resolve(const Options& options) {
  Config config;
  config.hermetic_ = options.ignore_environment;
  const std::string file = config.hermetic_ ? "" : config_path();
  const auto from_file = file.empty() ? decltype(read_config_file(file)){} : read_config_file(file);

  std::vector<std::string> environment_names, template_paths;
  for (const Known& known : kKnown) {
    Setting s{known.name, known.default_value, "default", known.doc};
    environment_names.push_back(environment_name(known.name));
    const bool accumulates = s.name == "template_path";
    const auto take = [&](const std::string& value, const std::string& origin) {
      if (value.empty()) return;
      if (accumulates) template_paths.push_back(value);
      if (s.origin == "default") s.value = value, s.origin = origin;
    };
    take(option_value(options, known), "option");
    if (!config.hermetic_) {
      const char* env = std::getenv(environment_names.back().c_str());
      if (env) take(env, environment_names.back());
      for (const auto& [name, value] : from_file) {
        if (name == s.name) take(value, file);
      }
    }
    config.settings_.push_back(std::move(s));
  }
  if (!config.hermetic_) {
    config.unknown_ = unknown_environment(environment_names);
    for (const auto& [name, value] : from_file) {
      const auto same = [&n = name](const Setting& s) { return s.name == n; };
      if (std::none_of(config.settings_.begin(), config.settings_.end(), same)) {
        config.unknown_.push_back(file + ": '" + name + "' is not known to this version of kiln");
      }
    }
    for (const std::string& unknown : config.unknown_) base::warn_once(unknown, unknown);
    if (!base::set_log_level(config.get("log")))
      base::warn_once("log", "KILN_LOG = '" + config.get("log") +
                                 "': expected trace, debug, info, warning (or warn), error or off");
  }
  const std::string& toolchain = config.get("toolchain");
  if (!toolchain.empty() && toolchain != "own" && toolchain != "any" &&
      toolchain.find_first_not_of("0123456789abcdef") != std::string::npos) {
    bad(config.setting("toolchain"), "own, any or the first hex digits of a toolchain's digest");
  }
  config.mode();
  config.jobs();
  config.compile_deadline_s();
  config.cache_max_bytes();
  config.compile_memory_bytes();
  config.remote_writes();
  config.remote_budget_s();
  config.remote_when_sealed();
  config.debug();
  if (!config.get("arch").empty()) base::Arch::parse(config.get("arch"));

  for (const std::string& path : template_paths) {
    for (std::string& directory : base::split(path, ':'))
      config.template_directories_.push_back(std::move(directory));
  }
  auto& directories = config.template_directories_;
  const auto own = std::find_if(directories.begin(), directories.end(), holds_own_headers);
  if (own != directories.end())
    config.installed_templates_ = base::normalized(base::absolute(*own).value_or(*own));
  else if (config.installed_templates_ = find_installed_templates(); !config.installed_templates_.empty())
    directories.push_back(config.installed_templates_);
  return config;
}

const Setting& Config::setting(std::string_view name) const {
  for (const Setting& s : settings_) {
    if (s.name == name) return s;
  }
  throw Error(Errc::internal, "no setting '" + std::string(name) + "'");
}

Mode Config::mode() const {
  const Setting& s = setting("mode");
  if (s.value == "jit") return Mode::jit;
  if (s.value == "warn") return Mode::warn;
  if (s.value == "sealed") return Mode::sealed;
  bad(s, "jit, warn or sealed");
}

bool Config::mode_is_set() const { return setting("mode").origin != "default"; }

int Config::jobs() const {
  const double jobs = number_of(setting("jobs"), "a number of compile workers, 0 for one per core");
  return static_cast<int>(std::min(jobs, 1024.0));
}

double Config::compile_deadline_s() const {
  const Setting& s = setting("compile_deadline");
  const char* const allowed = "seconds, more than 0 and at most 10000000";
  const double seconds = number_of(s, allowed);
  if (seconds <= 0 || seconds > kLongestCompile_s) bad(s, allowed);
  return seconds;
}

bool Config::remote_writes() const {
  const Setting& s = setting("remote_mode");
  if (s.value != "locked" && s.value != "fleet") bad(s, "locked or fleet");
  return s.value == "fleet";
}

double Config::remote_budget_s() const {
  const Setting& s = setting("remote_budget");
  const char* const allowed = "seconds, at most 10000000";
  const double seconds = number_of(s, allowed);
  if (seconds > kLongestCompile_s) bad(s, allowed);
  return seconds;
}

bool Config::remote_when_sealed() const {
  const Setting& s = setting("remote_sealed");
  if (s.value != "never" && s.value != "ask") bad(s, "never or ask");
  return s.value == "ask";
}

bool Config::debug() const {
  const Setting& s = setting("debug");
  if (s.value != "0" && s.value != "1") bad(s, "0 or 1");
  return s.value == "1";
}

std::uint64_t Config::cache_max_bytes() const {
  const Setting& s = setting("cache_max_size");
  if (const auto bytes = parse_size(s.value)) return *bytes;
  bad(s, "bytes, or a number with K, M, G or T (powers of 1024), such as 512M or 5G; more than 0");
}

std::uint64_t Config::compile_memory_bytes() const {
  const Setting& s = setting("compile_memory");
  if (s.value.empty()) return 0;
  if (const auto bytes = parse_size(s.value)) return *bytes;
  bad(s, "bytes, or a number with K, M, G or T (powers of 1024), such as 4G; more than 0");
}

std::string Config::about_templates() const {
  if (!installed_templates_.empty()) return "KILN_TEMPLATE_PATH adds directories";
  return "kiln's own templates were not found (looked for " + base::join(template_candidates(), ", ") +
         "): set KILN_TEMPLATE_PATH or Options::template_path to the directory that holds them";
}

std::vector<std::string> Config::include_directories() const {
  std::vector<std::string> out;
  for (const std::string& directory : base::split(get("include_path"), ':')) {
    // Absolute, because the compiler has another working directory.
    out.push_back(base::normalized(base::absolute(directory).value_or("")));
  }
  return out;
}

}  // namespace kiln::runtime
