// A service's settings. The first source that sets a value decides: code or flag, KILN_*, the configuration
// file, the default.
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
  /// Error(invalid_argument) for a wrong value of mode, jobs, compile_deadline, cache_max_size,
  /// compile_memory, toolchain, debug or remote_*; the message names the value's origin. Throws
  /// Error(unsupported_arch) for a wrong arch.
  static Config resolve(const Options& options);

  /// Throws Error(internal) for an unknown name.
  const Setting& setting(std::string_view name) const;
  const std::string& get(std::string_view name) const { return setting(name).value; }
  const std::vector<Setting>& settings() const noexcept { return settings_; }
  /// The warnings of resolve(): KILN_* and keys of the configuration file that this version does not know.
  const std::vector<std::string>& unknown() const noexcept { return unknown_; }
  bool hermetic() const noexcept { return hermetic_; }

  Mode mode() const;
  /// True when code, environment or file set the mode.
  bool mode_is_set() const;
  int jobs() const;  ///< 0: one for each core that this process may use
  double compile_deadline_s() const;
  /// A launch that reports a fault also traps.
  bool debug() const;
  /// Bytes that the writable store may take on disk.
  std::uint64_t cache_max_bytes() const;
  /// Bytes that all compiles of this process may take together; 0: decide from the machine.
  std::uint64_t compile_memory_bytes() const;
  bool has_remote() const { return !get("remote").empty(); }
  /// True for remote_mode = fleet.
  bool remote_writes() const;
  double remote_budget_s() const;
  bool remote_when_sealed() const;

  /// Options, environment and file each add directories, in this order; the installed directory comes last.
  const std::vector<std::string>& template_directories() const noexcept { return template_directories_; }
  /// The directory of the installed templates, which also has "kiln/*.cuh". A directory of `template_path`
  /// that holds kiln's own headers takes its place. Empty when there is none.
  const std::string& installed_templates() const noexcept { return installed_templates_; }
  /// Text for an error about a template or header that was not found. It says what to set, and where kiln's
  /// own templates were looked for if they are missing, too.
  std::string about_templates() const;
  std::vector<std::string> include_directories() const;

 private:
  std::vector<Setting> settings_;
  std::vector<std::string> unknown_;
  std::vector<std::string> template_directories_;
  std::string installed_templates_;
  bool hermetic_ = false;
};

/// A size in bytes from "5G", "1.5 GiB" or "1000000"; units are powers of 1024. Nothing when the text
/// is no size.
std::optional<std::uint64_t> parse_size(std::string_view text);

}  // namespace kiln::runtime
