// kiln: the command. One file per subcommand; here they are listed, parsed and their errors turned into exit
// codes.
#include <fcntl.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "base/text.hpp"
#include "command_tree.hpp"
#include "commands.hpp"
#include "complete.hpp"
#include "context.hpp"
#include "errors.hpp"
#include "interrupt.hpp"
#include "kiln/kiln.h"
#include "lock_holder.hpp"
#include "output.hpp"
#include "store_reader.hpp"

namespace kiln::cli {
namespace {

/// The subcommand that was chosen, at whatever depth; `app` when none was.
CLI::App& chosen_of(CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : chosen_of(*chosen.front());
}

/// Said of a subcommand that there is none of: what comes nearest, which may be what other commands call it.
std::string unknown_subcommand(const std::string& word, const CommandPage& page, bool of_kiln) {
  std::vector<std::string> known;
  for (const CommandPage& sub : page.subcommands) known.push_back(sub.word());
  std::string nearest = base::did_you_mean(word, known);
  if (of_kiln) {
    if (word == "list") nearest = base::did_you_mean("ls", known);
    if (!base::did_you_mean(word, {"version"}).empty()) nearest = "; did you mean '--version'?";
    if (nearest.empty()) known.push_back("--version");
  }
  return "unknown subcommand '" + word + "'" +
         (nearest.empty() ? "; there are: " + base::join(known, " ") : nearest);
}

/// What a parse error says, with the nearest name where one is unknown.
std::string usage_message(CLI::App& app, const CLI::ParseError& error) {
  CLI::App& where = chosen_of(app);
  const CommandPage page = describe(Command(where));
  std::string message = error.what();
  const std::vector<std::string> unexpected = app.remaining(true);
  const bool no_subcommand = dynamic_cast<const CLI::RequiredError*>(&error) && !page.subcommands.empty();
  if ((dynamic_cast<const CLI::ExtrasError*>(&error) || no_subcommand) && !unexpected.empty()) {
    const std::string word = unexpected.front().substr(0, unexpected.front().find('='));
    std::vector<std::string> known;
    if (word.starts_with('-')) {
      for (const CommandOption& option : page.options) {
        if (!option.positional) known.push_back(option.names.back());
      }
      message = "unknown flag '" + word + "'" + base::did_you_mean(word, known);
    } else if (!page.subcommands.empty()) {
      message = unknown_subcommand(word, page, &where == &app);
    } else {
      message = "unexpected argument '" + unexpected.front() + "'";
    }
  }
  return message + " (see '" + page.name + " --help')";
}

constexpr std::size_t kHelpColumn = 26;  // where what an option does begins

/// CLI11's, with single blank lines, and no wider than the terminal.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    for (std::size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) text.erase(at, 1);
    const std::size_t width = standard_output().width;
    return width < 2 * kHelpColumn ? text : fitted(text, width);
  }

 private:
  /// Long lines broken, what follows under their text: behind the names of options, or where the line begins.
  static std::string fitted(const std::string& text, std::size_t width) {
    std::string out;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
      if (indent == 2 && line.size() > kHelpColumn && line[kHelpColumn - 1] == ' ') indent = kHelpColumn;
      std::string before = line.substr(0, indent);
      for (const std::string& piece : wrapped(std::string_view(line).substr(indent), width - indent)) {
        out += before + piece + '\n';
        before.assign(indent, ' ');
      }
    }
    return out;
  }
};

void add_commands(CLI::App& app, Context& context) {
  const Command kiln(app);
  add_templates(kiln, context);
  add_lint(kiln, context);
  add_compile(kiln, context);
#ifdef KILN_COMMAND_RUN
  add_run(kiln, context);
  add_tune(kiln, context);
#endif
  add_import(kiln, context);
  add_prewarm(kiln, context);
  add_ls(kiln, context);
  add_show(kiln, context);
  add_why(kiln, context);
  add_diff(kiln, context);
  add_stats(kiln, context);
  add_top(kiln, context);
  add_report(kiln, context);
  add_verify(kiln, context);
  add_audit(kiln, context);
  add_gc(kiln, context);
  add_clear(kiln, context);
  add_bundle(kiln, context);
  add_remote(kiln, context);
  add_doctor(kiln, context);
  add_completion(kiln, context);
  add_man(kiln, context);
  constexpr std::pair<const char*, std::string_view> groups[] = {
      {"Compile", "templates import lint compile run tune prewarm"},
      {"Inspect", "ls show why diff stats top report"},
      {"Maintain and ship", "verify audit gc clear bundle remote"},
      {"This machine", "doctor completion man"}};
  for (CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; })) {
    for (const auto& [group, names] : groups)
      if (names.find(sub->get_name()) != names.npos) sub->group(group);
  }
}

/// `kiln help bundle export` is `kiln bundle export --help`. What names no command is left to be parsed, and
/// refused.
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
  const auto formatter = std::make_shared<HelpFormatter>();
  formatter->column_width(kHelpColumn);
  app.formatter(formatter);
  context.add_common_flags(Command(app));
  add_commands(app, context);
  app.footer(
      "Exit status: 0 done, 1 failed, 2 usage, 3 partly done or not covered, 4 damage found,\n"
      "5 remote down under --strict.\n"
      "'kiln help COMMAND' explains a command; 'kiln doctor' checks this machine.");
  std::vector<std::string> arguments = arguments_of(describe(Command(app)), argc, argv);
  if (!arguments.empty() && arguments.front() == kCompleteCommand)
    return complete(describe(Command(app)), context, {arguments.begin() + 1, arguments.end()});
  // The flag may stand behind one that is not understood.
  const bool json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
  try {
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(std::move(arguments));
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help and --version
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
  if (argc == 4 && std::strcmp(argv[1], kiln::cli::kLockHolderCommand) == 0)
    return kiln::cli::hold_lock(argv[2], argv[3]);
  if (argc == 3 && std::strcmp(argv[1], kiln::cli::kStoreReaderCommand) == 0)
    return kiln::cli::read_store_for_parent(argv[2]);
  const int status = kiln::cli::run(argc, argv);
  kiln::cli::end_if_pipe_closed();  // what the command made is destroyed, and has saved what it counted
  return status;
} catch (const std::exception& error) {  // out of memory, before there is a command
  std::fprintf(stderr, "kiln: error: %s\n", error.what());
  return kiln::cli::kFailed;
}
