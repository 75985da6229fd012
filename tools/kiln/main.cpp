// kiln: the command. One file per subcommand; here they are listed, parsed and their errors turned into exit
// codes.
#include <fcntl.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/text.hpp"
#include "commands.hpp"
#include "context.hpp"
#include "errors.hpp"
#include "interrupt.hpp"
#include "kiln/kiln.h"
#include "lock_holder.hpp"
#include "store_reader.hpp"

namespace kiln::cli {
namespace {

std::vector<std::string> command_names(CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; }))
    out.push_back(sub->get_name());
  return out;
}

/// What a parse error says, with the nearest name where one is unknown.
std::string usage_message(CLI::App& app, const CLI::ParseError& error) {
  const auto chosen = app.get_subcommands();
  CLI::App& where = chosen.empty() ? app : *chosen.front();
  const std::string command = chosen.empty() ? "kiln" : "kiln " + where.get_name();
  std::string message = error.what();
  const std::vector<std::string> unexpected = app.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) && !unexpected.empty()) {
    const std::string word = unexpected.front().substr(0, unexpected.front().find('='));
    std::vector<std::string> known;
    if (word.starts_with('-')) {
      for (const CLI::Option* option : where.get_options()) {
        for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
      }
      message = "unknown flag '" + word + "'" + base::did_you_mean(word, known);
    } else if (chosen.empty()) {
      known = command_names(app);
      const std::string nearest = base::did_you_mean(word, known);
      message = "unknown subcommand '" + word + "'" +
                (nearest.empty() ? "; there are: " + base::join(known, " ") : nearest);
    } else {
      message = "unexpected argument '" + unexpected.front() + "'";
    }
  }
  return message + " (see '" + command + " --help')";
}

/// CLI11's, with single blank lines.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    for (std::size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) text.erase(at, 1);
    return text;
  }
};

void add_commands(CLI::App& app, Context& context) {
  add_templates(app, context);
  add_compile(app, context);
#ifdef KILN_COMMAND_RUN
  add_run(app, context);
#endif
  add_prewarm(app, context);
  add_ls(app, context);
  add_show(app, context);
  add_why(app, context);
  add_diff(app, context);
  add_stats(app, context);
  add_top(app, context);
  add_report(app, context);
  add_verify(app, context);
  add_audit(app, context);
  add_gc(app, context);
  add_clear(app, context);
  add_bundle(app, context);
  add_doctor(app, context);
  add_completion(app, context);
  add_man(app, context);
}

int run(int argc, char** argv) {
  Context context;
  CLI::App app("Specialises, compiles and caches CUDA kernel templates.", "kiln");
  app.set_version_flag("--version", std::string("kiln ") + kiln_version());
  app.require_subcommand(0, 1);
  const auto formatter = std::make_shared<HelpFormatter>();
  formatter->column_width(26);
  app.formatter(formatter);
  context.add_common_flags(app);
  add_commands(app, context);
  app.footer(
      "Exit status: 0 done, 1 failed, 2 usage, 3 partly done or not covered, 4 damage found.\n"
      "'kiln COMMAND --help' explains a command; 'kiln doctor' checks this machine.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help and --version
  } catch (const CLI::ParseError& error) {
    // The flag may stand behind the one that was not understood.
    context.json |=
        std::any_of(argv, argv + argc, [](const char* a) { return std::strcmp(a, "--json") == 0; });
    if (const auto chosen = app.get_subcommands(); !chosen.empty())
      context.command = chosen.front()->get_name();
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
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    std::fprintf(stderr, "kiln: error: cannot write to stdout: %s\n", std::strerror(errno));
    return status == kDone ? kFailed : status;
  }
  return status;
}

}  // namespace
}  // namespace kiln::cli

/// A closed standard descriptor would be given to the next file that is opened, and output would be written
/// into it: into the store, once. Input and errors go to /dev/null; output is opened unwritable, so that
/// writing results fails aloud.
static void keep_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0)
      ::open("/dev/null", fd == 1 ? O_RDONLY : O_RDWR);  // the lowest free number is fd
  }
}

int main(int argc, char** argv) try {
  keep_standard_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // past a file-size limit a write fails instead
  kiln::cli::install_signal_handlers();
  if (argc == 3 && std::strcmp(argv[1], kiln::cli::kLockHolderCommand) == 0)
    return kiln::cli::hold_lock(argv[2]);
  if (argc == 3 && std::strcmp(argv[1], kiln::cli::kStoreReaderCommand) == 0)
    return kiln::cli::read_store_for_parent(argv[2]);
  return kiln::cli::run(argc, argv);
} catch (const std::exception& error) {  // out of memory, before there is a command
  std::fprintf(stderr, "kiln: error: %s\n", error.what());
  return kiln::cli::kFailed;
}
