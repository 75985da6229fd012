// The commands as data: the one source of --help, the man pages and shell completion.
#pragma once

#include <string>
#include <vector>

namespace kiln::cli {

class Command;

struct CommandOption {
  std::vector<std::string> names;  ///< "-t", "--template"; a positional has one name, such as "template"
  std::string value;               ///< "NAME"; empty for a flag; choices read "size|age"
  std::string text;
  bool positional = false, required = false, repeated = false, common = false;
};

struct CommandPage {
  std::string name;  ///< "kiln", "kiln bundle export"
  std::string summary, footer;
  std::string group;  ///< the heading under which `kiln --help` lists it
  std::vector<CommandOption> options;
  std::vector<CommandPage> subcommands;

  /// "export"
  std::string word() const { return name.substr(name.rfind(' ') + 1); }
  /// "kiln-bundle-export"
  std::string file_name() const;
  /// "kiln ls [OPTION]... [P=V]..."
  std::string synopsis() const;
  const CommandPage* subcommand(const std::string& word) const;
};

inline constexpr const char* kCommonOptions = "Common options";

CommandPage describe(Command app);

}  // namespace kiln::cli
