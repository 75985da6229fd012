#include "tools/kiln/import/expression.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "expression/expression.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

/// "128u" -> "128"; empty when it is no integer that expressions accept.
std::string integer_text(std::string_view number) {
  std::string out(number);
  while (!out.empty() && std::string_view("uUlLzZ").find(out.back()) != std::string_view::npos)
    out.pop_back();
  const bool hex = out.starts_with("0x") || out.starts_with("0X");
  const std::string_view digits = hex ? "0123456789abcdefABCDEF" : "0123456789";
  const std::string body = hex ? out.substr(2) : out;
  const bool octal = !hex && body.size() > 1 && body[0] == '0';
  if (body.empty() || body.size() > 18 || octal || body.find_first_not_of(digits) != std::string::npos)
    return {};
  return out;
}

std::optional<source::Expression> compiled(const std::string& text,
                                           const std::vector<ImportParameter>& known) {
  source::Symbols symbols;
  symbols.constants = {{"true", 1}, {"false", 0}};
  for (std::size_t i = 0; i < known.size(); ++i) {
    symbols.slots.emplace(known[i].name, static_cast<int>(i));
    if (known[i].kind == ImportParameter::Kind::dtype) symbols.dtypes.insert(known[i].name);
  }
  try {
    return source::Expression::compile(text, symbols, "");
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::string expression_of(const Tokens& tokens, const std::vector<ImportParameter>& known) {
  std::string out;
  for (const Token& t : tokens) {
    std::string piece(t.text);
    if (t.kind == Token::Kind::literal) {
      piece = integer_text(t.text);
    } else if (t.kind == Token::Kind::word) {
      const bool parameter = std::any_of(known.begin(), known.end(), [&](const ImportParameter& p) {
        return p.name == t.text && p.kind != ImportParameter::Kind::type &&
               p.kind != ImportParameter::Kind::enumeration;
      });
      if (!parameter && piece != "true" && piece != "false" && piece != "sizeof") return {};
    } else if (std::string_view("()+-*/%?:<>=!&|").find(piece) == std::string_view::npos) {
      return {};
    }
    if (piece.empty()) return {};
    // The reader splits "<=" and "&&" into characters.
    const bool joins = !out.empty() &&
                       std::string_view("<>=!&|").find(out.back()) != std::string_view::npos &&
                       std::string_view("=&|").find(piece) != std::string_view::npos;
    const bool tight = joins || out.empty() || out.back() == '(' || piece == ")" ||
                       (piece == "(" && out.ends_with("sizeof"));
    out += (tight ? "" : " ") + piece;
  }
  if (tokens.size() == 2 && out.starts_with("- ")) out.erase(1, 1);  // -1
  return !out.empty() && compiled(out, known) ? out : std::string();
}

std::optional<std::int64_t> constant_of(const std::string& text) {
  const auto expression = compiled(text, {});
  try {
    if (expression && !expression->empty()) return expression->evaluate({});
  } catch (const Error&) {  // overflow
  }
  return std::nullopt;
}

std::string identifier_of(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (base::is_identifier_character(c))
      out += c;
    else if (!out.empty() && out.back() != '_')
      out += '_';
  }
  while (!out.empty() && out.back() == '_' && text.back() != '_') out.pop_back();
  if (out.empty() || (out[0] >= '0' && out[0] <= '9')) out.insert(0, "v");
  return out;
}

}  // namespace kiln::cli
