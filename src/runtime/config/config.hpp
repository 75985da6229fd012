// Where a service's settings come from: code or flag, then KILN_*, then the configuration file, then the
// default.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/options.hpp"

namespace kiln::runtime {

struct Setting {
  std::string name;    ///< "cache_dir"; the environment's name is KILN_CACHE_DIR, the file's key cache_dir
  std::string value;   ///< "" when nothing sets it
  std::string origin;  ///< "option", "KILN_CACHE_DIR", "/home/u/.config/kiln/config.toml", "default"
  std::string doc;
};

class Config {
 public:
  /// Warns about KILN_* variables and configuration keys that this version does not know. Throws
  /// Error(invalid_argument) for a value that cannot be right (mode, jobs, compile_deadline,
  /// cache_max_size, compile_memory, remote_*), naming its origin.
  static Config resolve(const Options& options);

  /// Throws Error(internal) for a name that is no setting's.
  const Setting& setting(std::string_view name) const;
  const std::string& get(std::string_view name) const { return setting(name).value; }
  const std::vector<Setting>& settings() const noexcept { return settings_; }
  /// What was warned about: KILN_* and keys of the configuration file that this version does not know.
  const std::vector<std::string>& unknown() const noexcept { return unknown_; }
  bool hermetic() const noexcept { return hermetic_; }

  Mode mode() const;
  /// Whether anybody said which mode: code, environment or file.
  bool mode_is_set() const;
  int jobs() const;  ///< 0: as many as the machine has cores for us
  double compile_deadline_s() const;
  /// What the writable store may take on disk.
  std::uint64_t cache_max_bytes() const;
  /// What all compiles of this process may take together; 0: decide from the machine.
  std::uint64_t compile_memory_bytes() const;
  bool has_remote() const { return !get("remote").empty(); }
  /// remote_mode = fleet.
  bool remote_writes() const;
  double remote_budget_s() const;
  bool remote_when_sealed() const;

  /// Options, environment and file each add directories, in this order; the installed directory comes last.
  const std::vector<std::string>& template_directories() const noexcept { return template_directories_; }
  /// The installed templates: also where "kiln/*.cuh" is found. A directory of `template_path` that holds
  /// kiln's own headers stands for them. Empty when there is none.
  const std::string& installed_templates() const noexcept { return installed_templates_; }
  /// For an error about a template or header that was not found: where kiln's own were looked for when they
  /// were not found either, and what to set.
  std::string about_templates() const;
  std::vector<std::string> include_directories() const;

 private:
  std::vector<Setting> settings_;
  std::vector<std::string> unknown_;
  std::vector<std::string> template_directories_;
  std::string installed_templates_;
  bool hermetic_ = false;
};

/// "5G", "1.5 GiB", "1000000": powers of 1024. Nothing when it is no size.
std::optional<std::uint64_t> parse_size(std::string_view text);

}  // namespace kiln::runtime
