#include "tools/kiln/help/man_page.hpp"

#include <algorithm>
#include <cctype>

#include "base/text.hpp"
#include "kiln/kiln.h"
#include "runtime/config/config.hpp"

namespace kiln::cli {
namespace {

/// Escapes roff's special characters. A minus is escaped, too, so that it is not printed as a hyphen.
std::string escaped(std::string_view text) {
  std::string out;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    line_start = c == '\n';
  }
  return out;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string section(const std::string& title) { return ".SH " + escaped(upper(title)) + '\n'; }

/// "\fB\-t\fR, \fB\-\-template\fR \fINAME\fR" and its text, indented.
std::string definition(const CommandOption& option) {
  std::string head;
  for (const std::string& name : option.names)
    head += (head.empty() ? "" : ", ") + ("\\fB" + escaped(name) + "\\fR");
  if (option.positional)
    head = "\\fI" + escaped(option.value.empty() ? option.names.front() : option.value) + "\\fR";
  else if (!option.value.empty())
    head += " \\fI" + escaped(option.value) + "\\fR";
  return ".TP\n" + head + '\n' + escaped(option.text) + '\n';
}

template <class Which>
std::string options(const CommandPage& page, const std::string& title, Which&& which) {
  std::string out;
  for (const CommandOption& option : page.options)
    if (which(option)) out += definition(option);
  return out.empty() ? out : section(title) + out;
}

/// Lines with the same breaks as in --help.
std::string lines(const std::string& text) { return ".nf\n" + escaped(text) + "\n.fi\n"; }

std::string subcommands(const CommandPage& page) {
  std::string out, group;
  for (const CommandPage& sub : page.subcommands) {
    if (sub.group != group) out += section(group = sub.group);
    out += ".TP\n\\fB" + escaped(sub.file_name()) + "\\fR(1)\n" + escaped(sub.summary) + ".\n";
  }
  return out;
}

std::string configuration() {
  std::string out =
      section("Configuration") +
      "A flag overrides the environment, the environment overrides\n"
      "\\fI$XDG_CONFIG_HOME/kiln/config.toml\\fR (keys in lower case, without KILN_),\n"
      "and the file overrides the default. \\fBkiln doctor \\-v\\fR shows where each value comes from.\n";
  const runtime::Config config = runtime::Config::resolve(Options::hermetic());
  for (const runtime::Setting& setting : config.settings()) {
    const std::string preset = setting.value.empty() ? "" : " (default: " + setting.value + ')';
    out += ".TP\n.B KILN_" + escaped(upper(setting.name)) + '\n' + escaped(setting.doc + preset) + '\n';
  }
  return out + ".TP\n.B NO_COLOR\nIf set and not empty, output has no colours, even on a terminal.\n";
}

std::string exit_status() {
  constexpr const char* meanings[] = {"done",
                                      "failed",
                                      "usage: an argument is missing, unknown or not allowed",
                                      "partly done, or not everything is cached",
                                      "damage found",
                                      "a remote server is down, and --strict was given"};
  std::string out = section("Exit status");
  for (std::size_t i = 0; i < std::size(meanings); ++i)
    out += ".TP\n.B " + std::to_string(i) + '\n' + escaped(meanings[i]) + '\n';
  return out + ".TP\n.B 130\ninterrupted by Ctrl\\-C\n";
}

std::string see_also(const CommandPage& page, const CommandPage& root) {
  std::string out;
  if (&page != &root) out = ".BR kiln (1)";
  for (const CommandPage& sub : page.subcommands)
    out += (out.empty() ? "" : ",\n") + (".BR " + escaped(sub.file_name()) + " (1)");
  return section("See also") + out + '\n';
}

}  // namespace

std::string man_page(const CommandPage& page, const CommandPage& root) {
  std::string out = ".TH " + escaped(upper(page.file_name())) + " 1 \"\" \"kiln " + escaped(kiln_version()) +
                    "\" \"kiln manual\"\n";
  out += section("Name") + escaped(page.file_name()) + " \\- " + escaped(page.summary) + '\n';
  out += section("Synopsis") + ".B " + escaped(page.synopsis()) + '\n';
  if (&page != &root && !page.footer.empty()) out += section("Description") + lines(page.footer);
  out += options(page, "Arguments", [](const CommandOption& o) { return o.positional; });
  out += options(page, "Options", [](const CommandOption& o) { return !o.positional && !o.common; });
  out += options(page, kCommonOptions, [](const CommandOption& o) { return o.common; });
  out += subcommands(page);
  if (&page == &root) out += configuration() + exit_status();
  return out + see_also(page, root);
}

}  // namespace kiln::cli
