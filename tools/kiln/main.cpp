// kiln: the command. Lists its subcommands, and turns errors into exit codes.
#include <fcntl.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>

#include "kiln/kiln.h"
#include "tools/kiln/audit/audit.hpp"
#include "tools/kiln/bundle/bundle.hpp"
#include "tools/kiln/caches/caches.hpp"
#include "tools/kiln/cli/command_tree.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/help_format.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/cli/usage.hpp"
#include "tools/kiln/compile/compile.hpp"
#include "tools/kiln/doctor/doctor.hpp"
#include "tools/kiln/fleet/remote.hpp"
#include "tools/kiln/help/help.hpp"
#include "tools/kiln/import/import.hpp"
#include "tools/kiln/inspect/inspect.hpp"
#include "tools/kiln/lint/lint.hpp"
#include "tools/kiln/maintain/maintain.hpp"
#include "tools/kiln/prewarm/prewarm.hpp"
#include "tools/kiln/report/report.hpp"
#include "tools/kiln/run/run.hpp"
#include "tools/kiln/stats/stats.hpp"
#include "tools/kiln/templates/templates.hpp"
#include "tools/kiln/top/top.hpp"
#include "tools/kiln/tune/tune.hpp"
#include "tools/kiln/verify/verify.hpp"
#include "tools/kiln/version.hpp"
#include "tools/kiln/why/why.hpp"

namespace kiln::cli {
namespace {

struct Row {
  const char* name;
  const char* group;  ///< the heading under which `kiln --help` lists it; kHidden: nothing lists it
  void (*add)(Command, Context&);
};
constexpr const char *kCompile = "Compile", *kInspect = "Inspect", *kMaintain = "Maintain and ship",
                     *kMachine = "This machine", *kHidden = nullptr;
/// In the order in which `kiln --help` lists them.
constexpr Row kCommands[] = {
    {"templates", kCompile, add_templates},
    {"lint", kCompile, add_lint},
    {"compile", kCompile, add_compile},
    {"run", kCompile, add_run},
    {"tune", kCompile, add_tune},
    {"import", kCompile, add_import},
    {"prewarm", kCompile, add_prewarm},
    {"ls", kInspect, add_ls},
    {"show", kInspect, add_show},
    {"why", kInspect, add_why},
    {"diff", kInspect, add_diff},
    {"stats", kInspect, add_stats},
    {"top", kInspect, add_top},
    {"report", kInspect, add_report},
    {"verify", kMaintain, add_verify},
    {"audit", kMaintain, add_audit},
    {"gc", kMaintain, add_gc},
    {"clear", kMaintain, add_clear},
    {"bundle", kMaintain, add_bundle},
    {"remote", kMaintain, add_remote},
    {"caches", kMaintain, add_caches},
    {"wrap", kMaintain, add_wrap},
    {"doctor", kMachine, add_doctor},
    {"completion", kMachine, add_completion},
    {"man", kMachine, add_man},
    {kCompleteCommand, kHidden, add_complete},
    {kLockHolderCommand, kHidden, add_lock_holder},
    {kStoreReaderCommand, kHidden, add_store_reader},
};

void add_commands(CLI::App& app, Context& context) {
  for (const Row& row : kCommands) {
    row.add(Command(app), context);
    if (row.group != kHidden) app.get_subcommand(row.name)->group(row.group);
  }
}

/// `kiln help bundle export` becomes `kiln bundle export --help`. Words that name no command are kept, and
/// the parser refuses them.
std::vector<std::string> arguments_of(const CommandPage& root, int argc, char** argv) {
  std::vector<std::string> out(argv + std::min(argc, 1), argv + argc);
  if (out.empty() || out.front() != "help") return out;
  out.erase(out.begin());
  const CommandPage* page = &root;
  for (const std::string& word : out) page = page ? page->subcommand(word) : nullptr;
  if (page) out.push_back("--help");
  return out;
}

int run(int argc, char** argv) {
  Context context;
  CLI::App app("Specialises, compiles and caches CUDA kernel templates.", "kiln");
  app.set_version_flag("--version", std::string("kiln ") + kiln_version());
  app.require_subcommand(0, 1);
  app.formatter(help_format());
  context.add_common_flags(Command(app));
  add_commands(app, context);
  app.footer(
      "Exit status: 0 done, 1 failed, 2 usage, 3 partly done or not all cached, 4 damage found,\n"
      "5 a remote server is down (with --strict).\n"
      "'kiln help COMMAND' explains a command; 'kiln doctor' checks this machine.");
  std::vector<std::string> arguments = arguments_of(describe(Command(app)), argc, argv);
  if (const std::optional<int> status = context.run_hidden(arguments)) return *status;
  // --json counts even when an argument before it is not understood.
  const bool json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
  // CLI11 leaves the arguments after --version unread.
  const auto unknown = std::find_if(arguments.begin(), arguments.end(), [&](const std::string& word) {
    return word.starts_with("-") && !app.get_option_no_throw(word.substr(0, word.find('=')));
  });
  const std::string mistyped = unknown == arguments.end() ? "" : *unknown;
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes the arguments in reverse order
    app.parse(std::move(arguments));
  } catch (const CLI::CallForVersion& version) {
    if (!mistyped.empty())
      return report(context, Errc::invalid_argument,
                    "--version: '" + mistyped + "' is no option of kiln; --json may stand beside --version");
    if (!json) return app.exit(version);
    print_json(version_json());
    return kDone;
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help
  } catch (const CLI::ParseError& error) {
    context.json |= json;
    const std::string name = describe(Command(chosen_of(app))).name;
    if (name != app.get_name()) context.command = name.substr(app.get_name().size() + 1);
    return report(context, Errc::invalid_argument, usage_message(app, error));
  }
  if (!context.action) {
    std::fputs(app.help().c_str(), stderr);
    return kUsage;
  }
  int status = kFailed;
  try {
    status = context.action();
  } catch (...) {
    status = report_current(context);
  }
  if ((std::fflush(stdout) != 0 || std::ferror(stdout)) && !pipe_closed()) {
    std::fprintf(stderr, "kiln: error: cannot write to stdout: %s\n", std::strerror(errno));
    return status == kDone ? kFailed : status;
  }
  return status;
}

}  // namespace
}  // namespace kiln::cli

/// A closed standard descriptor's number would go to the next opened file, and output would be written into
/// that file. This once damaged a store. Input and errors go to /dev/null. Output is opened read-only, so
/// that writing results fails with an error.
static void keep_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0)
      ::open("/dev/null", fd == 1 ? O_RDONLY : O_RDWR);  // the lowest free number is fd
  }
}

int main(int argc, char** argv) try {
  keep_standard_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // a write past a file-size limit then fails instead
  kiln::cli::install_signal_handlers();
  const int status = kiln::cli::run(argc, argv);
  kiln::cli::end_if_pipe_closed();  // everything is destroyed by now, and counters are saved
  return status;
} catch (const std::exception& error) {  // out of memory before a command runs
  std::fprintf(stderr, "kiln: error: %s\n", error.what());
  return kiln::cli::kFailed;
}
