#include "tools/kiln/stats/exposition.hpp"

#include <charconv>

namespace kiln::cli {
namespace {

/// Escapes the characters in `what`: backslash and line end everywhere, and quotes in label values.
std::string escaped(std::string_view text, std::string_view what) {
  std::string out;
  for (const char c : text) {
    if (what.find(c) != std::string_view::npos) out += '\\';
    out += c == '\n' ? 'n' : c;
  }
  return out;
}

}  // namespace

void Exposition::metric(std::string_view name, Type type, std::string_view help) {
  name_ = name;
  text_ += "# HELP " + name_ + ' ' + escaped(help, "\\\n") + '\n';
  text_ += "# TYPE " + name_ + (type == Type::counter ? " counter\n" : " gauge\n");
}

void Exposition::line(const Labels& labels, std::string_view value) {
  text_ += name_;
  char before = '{';
  for (const Labels* list : {&everywhere_, &labels}) {
    for (const auto& [name, text] : *list) {
      text_ += before + name + "=\"" + escaped(text, "\\\n\"") + '"';
      before = ',';
    }
  }
  if (before == ',') text_ += '}';
  text_ += ' ';
  text_ += value;
  text_ += '\n';
}

void Exposition::sample(const Labels& labels, std::uint64_t value) { line(labels, std::to_string(value)); }

void Exposition::sample(const Labels& labels, double value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value);
  line(labels, {text, static_cast<std::size_t>(end.ptr - text)});
}

}  // namespace kiln::cli
