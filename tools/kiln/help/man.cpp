// kiln man: man pages from the same source as --help.
#include "tools/kiln/help/man.hpp"

#include "base/text.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/help/man_page.hpp"

namespace kiln::cli {
namespace {

struct ManArguments {
  std::vector<std::string> command;
  std::string directory;
};

const CommandPage& find(const CommandPage& root, const std::vector<std::string>& words) {
  const CommandPage* page = &root;
  for (const std::string& word : words) {
    const CommandPage* above = std::exchange(page, page->subcommand(word));
    if (page) continue;
    std::vector<std::string> known;
    for (const CommandPage& sub : above->subcommands) known.push_back(sub.word());
    throw Error(Errc::invalid_argument, "no command '" + base::join(words, " ") + '\'' +
                                            base::did_you_mean(word, known) + " (see 'kiln --help')");
  }
  return *page;
}

/// Writes KILN-COMMAND.1 into `directory` for the command and each of its subcommands.
void write_all(const CommandPage& page, const CommandPage& root, const std::string& directory, Json& files) {
  const std::string path = directory + '/' + page.file_name() + ".1";
  write_output(path, man_page(page, root));
  files.push_back(path);
  for (const CommandPage& sub : page.subcommands) write_all(sub, root, directory, files);
}

int man(Command app, const Context& context, const ManArguments& arguments) {
  const CommandPage root = describe(app);
  Json out{{"schema", context.schema()}};
  if (!arguments.directory.empty()) {
    out["files"] = Json::array();
    write_all(root, root, arguments.directory, out["files"]);
    if (!context.json)
      print("wrote " + counted(out["files"].size(), "page") + " into " + arguments.directory + '\n');
  } else {
    const CommandPage& page = find(root, arguments.command);
    out["name"] = page.file_name();
    out["roff"] = man_page(page, root);
    if (!context.json) print(out["roff"].get<std::string>());
  }
  if (context.json) print_json(out);
  return kDone;
}

}  // namespace

void add_man(Command app, Context& context) {
  const auto arguments = std::make_shared<ManArguments>();
  const Command sub = context.add_command(
      app, "man", "Print a man page", [app, &context, arguments] { return man(app, context, *arguments); });
  sub.option("command", arguments->command, "The command; default: kiln itself").type_name("COMMAND");
  sub.option("--all", arguments->directory, "Write the pages of all commands into this directory")
      .type_name("DIR");
  sub.footer("To read a page: kiln man ls | man -l -");
}

}  // namespace kiln::cli
