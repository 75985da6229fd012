// Declares commands and their options. CLI11 is included in command.cpp only: a file that includes CLI11
// itself takes twice as long to compile.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace kiln::cli {

/// An option, a flag or a positional argument. The object is a handle that is valid as long as its command.
/// The methods return the handle; a method with the name of a CLI11 method does the same as that method.
class Option {
 public:
  Option() = default;  ///< no option
  explicit Option(CLI::Option* option) : option_(option) {}

  Option type_name(const std::string& name) const;
  Option group(const std::string& heading) const;
  Option required() const;
  Option expected(int least, int most) const;
  Option take_all() const;
  Option allow_extra_args(bool allow) const;
  Option capture_default_str() const;
  Option needs(Option other) const;
  Option excludes(Option other) const;
  /// Both bounds are allowed values.
  Option range(int least, int most) const;
  Option range(std::size_t least, std::size_t most) const;
  Option range(double least, double most) const;
  Option one_of(const std::vector<std::string>& values) const;
  /// Refuses an empty value. Needed where a command also works without the option: a script whose variable is
  /// unset must not silently get less than it asked for, such as an import without a signature.
  Option not_empty() const;

  /// True when the command line gives it. REQUIRES: the command line is parsed.
  bool given() const;

 private:
  CLI::Option* option_ = nullptr;
};

/// A handle of a command or a subcommand. The variables that its options are bound to must
/// outlive the command.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  Option option(const std::string& names, std::string& value, const std::string& text) const;
  Option option(const std::string& names, std::vector<std::string>& value, const std::string& text) const;
  Option option(const std::string& names, int& value, const std::string& text) const;
  Option option(const std::string& names, std::size_t& value, const std::string& text) const;
  Option option(const std::string& names, std::optional<std::size_t>& value, const std::string& text) const;
  Option option(const std::string& names, double& value, const std::string& text) const;
  Option flag(const std::string& names, bool& value, const std::string& text) const;
  /// Finds an option that was declared before. REQUIRES: the option exists.
  Option find(const std::string& name) const;
  void footer(const std::string& text) const;

  Command subcommand(const std::string& name, const std::string& summary) const;
  /// The command line must name one of the subcommands.
  void require_subcommand() const;
  /// `chosen` is called when the command line chooses it.
  void callback(std::function<void()> chosen) const;
  /// The last word of the full name: "export" for "bundle export".
  std::string name() const;
  /// True for `kiln` itself.
  bool is_root() const;
  CLI::App& app() const { return *app_; }

 private:
  CLI::App* app_;
};

}  // namespace kiln::cli
