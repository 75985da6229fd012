#include "tools/kiln/cli/command.hpp"

#include <CLI/CLI.hpp>

namespace kiln::cli {
namespace {

/// The description is empty because CLI11 would print it after the option's text, which already
/// gives the range.
template <class T>
Option ranged(CLI::Option* option, T least, T most) {
  return Option(option->check(CLI::Range(least, most).description("")));
}

}  // namespace

Option Option::type_name(const std::string& name) const { return Option(option_->type_name(name)); }
Option Option::group(const std::string& heading) const { return Option(option_->group(heading)); }
Option Option::required() const { return Option(option_->required()); }
Option Option::expected(int least, int most) const { return Option(option_->expected(least, most)); }
Option Option::take_all() const { return Option(option_->take_all()); }
Option Option::allow_extra_args(bool allow) const { return Option(option_->allow_extra_args(allow)); }
Option Option::capture_default_str() const { return Option(option_->capture_default_str()); }
Option Option::needs(Option other) const { return Option(option_->needs(other.option_)); }
Option Option::excludes(Option other) const { return Option(option_->excludes(other.option_)); }
Option Option::range(int least, int most) const { return ranged(option_, least, most); }
Option Option::range(std::size_t least, std::size_t most) const { return ranged(option_, least, most); }
Option Option::range(double least, double most) const { return ranged(option_, least, most); }

Option Option::one_of(const std::vector<std::string>& values) const {
  return Option(option_->check(CLI::IsMember(values).description("")));
}

Option Option::not_empty() const {
  return Option(option_->check(
      [](const std::string& value) {
        return value.empty() ? std::string("its value is empty") : std::string();
      },
      ""));
}

bool Option::given() const { return option_->count() > 0; }

Option Command::option(const std::string& names, std::string& value, const std::string& text) const {
  return Option(app_->add_option(names, value, text));
}
Option Command::option(const std::string& names, std::vector<std::string>& value,
                       const std::string& text) const {
  return Option(app_->add_option(names, value, text));
}
Option Command::option(const std::string& names, int& value, const std::string& text) const {
  return Option(app_->add_option(names, value, text));
}
Option Command::option(const std::string& names, std::size_t& value, const std::string& text) const {
  return Option(app_->add_option(names, value, text));
}
Option Command::option(const std::string& names, std::optional<std::size_t>& value,
                       const std::string& text) const {
  return Option(app_->add_option(names, value, text));
}
Option Command::option(const std::string& names, double& value, const std::string& text) const {
  return Option(app_->add_option(names, value, text));
}
Option Command::flag(const std::string& names, bool& value, const std::string& text) const {
  return Option(app_->add_flag(names, value, text));
}
Option Command::find(const std::string& name) const { return Option(app_->get_option(name)); }
void Command::footer(const std::string& text) const { app_->footer(text); }

Command Command::subcommand(const std::string& name, const std::string& summary) const {
  return Command(*app_->add_subcommand(name, summary));
}
void Command::require_subcommand() const { app_->require_subcommand(1); }
void Command::callback(std::function<void()> chosen) const { app_->callback(std::move(chosen)); }
std::string Command::name() const { return app_->get_name(); }
bool Command::is_root() const { return app_->get_parent() == nullptr; }

}  // namespace kiln::cli
