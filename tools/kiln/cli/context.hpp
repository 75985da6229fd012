// What all subcommands share: the common flags, and configuration, service and arch made from them on first
// use.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/service/service.hpp"
#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

/// Exit codes of DESIGN 8.
enum Exit : int {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,
  kPartly = 3,
  kDamaged = 4,
  kRemoteDown = 5,
  kInterrupted = 130
};

class Context {
 public:
  /// Common flags as given; empty: not given.
  std::string cache_dir, template_path, arch, log_level;
  bool json = false;
  /// Compile workers, for subcommands with -j; to be set before `service` is called.
  int jobs = 0;
  /// --max-size, for subcommands with it; empty: as configured.
  std::string max_size;
  /// --toolchain of `why`, likewise.
  std::string toolchain;
  /// --memory, likewise.
  std::string compile_memory;
  /// The chosen subcommand's name ("ls", "bundle export"), and what it does. Set by its CLI callback.
  std::string command;
  std::function<int()> action;

  /// A subcommand with the common flags; `run` is its action. Of `app`, or of a subcommand of it.
  Command add_command(Command app, const std::string& name, const std::string& summary,
                      std::function<int()> run);
  void add_common_flags(Command app);

  /// Throw Error(invalid_argument) for what cannot be right.
  runtime::Config config() const;
  runtime::Service& service();
  /// --arch, KILN_ARCH or the configuration file, this machine's GPU, sm_90a. Throws Error(unsupported_arch).
  base::Arch target_arch();
  /// The same for commands whose --arch is a list, in order, repeats removed.
  std::vector<base::Arch> target_archs();
  /// The name of the device whose tuned choices hold: `said` (--device), else this machine's GPU when it is
  /// of that arch, else none.
  std::string target_device(const std::string& said, base::Arch arch);
  /// "kiln.compile/1", "kiln.bundle-export/1"
  std::string schema() const;

 private:
  Options options() const;
  const std::optional<toolchain::DeviceFacts>& this_gpu();
  std::unique_ptr<runtime::Service> service_;
  std::optional<std::optional<toolchain::DeviceFacts>> gpu_;  // asked for once
};

}  // namespace kiln::cli
