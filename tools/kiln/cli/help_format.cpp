#include "tools/kiln/cli/help_format.hpp"

#include <algorithm>
#include <sstream>

#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/cli/table.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kHelpColumn = 26;  // column where the description of an option begins

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    for (std::size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) text.erase(at, 1);
    const std::size_t width = standard_output().width;
    return width < 2 * kHelpColumn ? text : fitted(text, width);
  }

 private:
  /// Breaks long lines. A continuation line is indented to the description column, or to the start of
  /// its own line.
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

}  // namespace

std::shared_ptr<CLI::Formatter> help_format() {
  auto out = std::make_shared<HelpFormatter>();
  out->column_width(kHelpColumn);
  return out;
}

}  // namespace kiln::cli
