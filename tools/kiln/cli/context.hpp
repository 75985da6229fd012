// State that all subcommands share: the common flags, and the configuration, service and arch made from them
// on first use.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/service/service.hpp"
#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

/// Exit codes of the command (docs/reference/command.md, "Common to all commands").
enum Exit : int {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,
  kPartly = 3,
  kDamaged = 4,
  kRemoteDown = 5,
  kInterrupted = 130
};

/// The targets that rows without an arch are compiled for.
struct TargetGpus {
  std::vector<base::Arch> archs;
  /// Compute capabilities, such as 103. Each row gets the fewest images that serve all of them.
  std::vector<int> devices;
  bool instead_of_rows = false;  ///< rows with an arch of their own are made for `archs`, too
};

/// Reads a list of --arch. The name of a GPU or generation stands for the archs of its GPUs, without repeats.
/// Throws Error(unsupported_arch), whose message has the known names.
std::vector<base::Arch> archs_named(const std::string& list);

class Context {
 public:
  /// Common flags as given; an empty string means that the flag was not given.
  std::string cache_dir, template_path, arch, log_level;
  bool json = false;
  /// Number of compile workers, for subcommands with -j. Must be set before `service` is called.
  int jobs = 0;
  /// --max-size, for subcommands that have the flag; empty: the configured size.
  std::string max_size;
  /// --toolchain of `kiln why`; empty: the configured one.
  std::string toolchain;
  /// --memory, for subcommands that have the flag; empty: the configured value.
  std::string compile_memory;
  /// The chosen subcommand's name ("ls", "bundle export") and its action. The CLI callback sets both.
  std::string command;
  std::function<int()> action;

  /// Adds a subcommand with the common flags below `app`, which is `kiln` or one of its subcommands. `run` is
  /// the action.
  Command add_command(Command app, const std::string& name, const std::string& summary,
                      std::function<int()> run);
  void add_common_flags(Command app);

  /// Adds a command that --help, man pages and completion leave out, because only programs start it. `run`
  /// receives the words after the name, which nothing parses. `words` is the only number of words that the
  /// command takes; nothing: any number.
  void add_hidden_command(const std::string& name, std::optional<std::size_t> words,
                          std::function<int(const std::vector<std::string>&)> run);
  /// Runs the hidden command that the first of `arguments` names, and returns its exit status. Nothing when
  /// they name none, or have another number of words than it takes.
  std::optional<int> run_hidden(const std::vector<std::string>& arguments) const;

  /// Both throw Error(invalid_argument) for a flag value that cannot be right.
  runtime::Config config() const;
  runtime::Service& service();
  /// The first of --arch, KILN_ARCH or the configuration file, this machine's GPU,
  /// sm_90a. Throws Error(unsupported_arch), and Error(invalid_argument) when --arch names several archs.
  base::Arch target_arch();
  /// The archs of a command whose --arch is a list, in that order and without repeats. Falls back as
  /// `target_arch` does.
  std::vector<base::Arch> target_archs();
  /// As target_archs, for a command that fills caches: GPUs and generations stay apart from the archs, because one image may
  /// serve several of them.
  TargetGpus target_gpus();
  /// The name of the device whose tuned choices apply: `said` (--device), else this machine's GPU when it has
  /// that arch, else empty.
  std::string target_device(const std::string& said, base::Arch arch);
  /// The schema name in JSON output: "kiln.compile/1", "kiln.bundle-export/1".
  std::string schema() const;

 private:
  struct HiddenCommand {
    std::string name;
    std::optional<std::size_t> words;
    std::function<int(const std::vector<std::string>&)> run;
  };

  Options options() const;
  const std::optional<toolchain::DeviceFacts>& this_gpu();
  std::vector<HiddenCommand> hidden_;
  std::unique_ptr<runtime::Service> service_;
  std::optional<std::optional<toolchain::DeviceFacts>> gpu_;  // queried once
};

}  // namespace kiln::cli
