// What commands and their options are declared with. CLI11 stands behind it, in command.cpp: a file that
// includes CLI11 itself takes twice as long to compile.
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

/// An option, a flag or a positional argument. A handle, which lives as long as its command; the methods
/// return it, and are CLI11's where they have its names.
class Option {
 public:
  Option() = default;  ///< none
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
  /// Both included.
  Option range(int least, int most) const;
  Option range(std::size_t least, std::size_t most) const;
  Option range(double least, double most) const;
  Option one_of(const std::vector<std::string>& values) const;
  /// For options that a command does without when they are not given: a script whose variable is unset must
  /// not get less than it asked for, such as an import without a signature.
  Option not_empty() const;

  /// Once the command line is parsed.
  bool given() const;

 private:
  CLI::Option* option_ = nullptr;
};

/// A command or a subcommand; a handle likewise. What its options are bound to outlives it.
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
  /// One that is declared. REQUIRES: it is there.
  Option find(const std::string& name) const;
  void footer(const std::string& text) const;

  Command subcommand(const std::string& name, const std::string& summary) const;
  /// One of its subcommands, and not itself.
  void require_subcommand() const;
  /// `chosen` is called when the command line chooses it.
  void callback(std::function<void()> chosen) const;
  /// "export" of "bundle export".
  std::string name() const;
  /// kiln itself.
  bool is_root() const;
  CLI::App& app() const { return *app_; }

 private:
  CLI::App* app_;
};

}  // namespace kiln::cli
