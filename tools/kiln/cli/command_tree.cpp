#include "tools/kiln/cli/command_tree.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {
namespace {

CommandOption option_of(const CLI::Option& option) {
  CommandOption out;
  out.text = option.get_description();
  out.value = option.get_type_name();
  out.positional = option.get_positional();
  out.required = option.get_required();
  out.repeated = option.get_items_expected_max() > 1;
  out.common = option.get_group() == kCommonOptions;
  if (out.positional) {
    out.names.push_back(option.get_name(true));
    return out;
  }
  for (const std::string& name : option.get_snames()) out.names.push_back('-' + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  if (option.get_items_expected_max() == 0) out.value.clear();
  return out;
}

CommandPage page_of(const CLI::App& app) {
  CommandPage out;
  out.name = app.get_name();
  for (const CLI::App* above = app.get_parent(); above; above = above->get_parent())
    out.name = above->get_name() + ' ' + out.name;
  out.summary = app.get_description();
  out.footer = app.get_footer();
  out.group = app.get_group();
  for (const CLI::Option* option : app.get_options()) out.options.push_back(option_of(*option));
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    out.subcommands.push_back(page_of(*sub));
  return out;
}

}  // namespace

std::string CommandPage::file_name() const {
  std::string out = name;
  std::replace(out.begin(), out.end(), ' ', '-');
  return out;
}

std::string CommandPage::synopsis() const {
  std::string out = name + " [OPTION]...";
  if (!subcommands.empty()) out += " COMMAND";
  for (const CommandOption& option : options) {
    if (!option.positional) continue;
    const std::string word = option.value.empty() ? option.names.front() : option.value;
    out += ' ' + (option.required ? word : '[' + word + ']') + (option.repeated ? "..." : "");
  }
  return out;
}

const CommandPage* CommandPage::subcommand(const std::string& word) const {
  const auto found = std::find_if(subcommands.begin(), subcommands.end(),
                                  [&](const CommandPage& page) { return page.word() == word; });
  return found == subcommands.end() ? nullptr : &*found;
}

CommandPage describe(Command command) { return page_of(command.app()); }

}  // namespace kiln::cli
