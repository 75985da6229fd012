#include "tools/kiln/import/expression.hpp"

#include "base/text.hpp"
#include "expression/expression.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

/// "128u" -> "128"; empty for an octal number, which expressions read as a decimal one.
std::string integer_text(std::string_view number) {
  std::string out(number);
  out.resize(out.find_last_not_of("uUlLzZ") + 1);
  const bool octal =
      out.size() > 1 && out[0] == '0' && base::is_identifier_character(out[1]) && out[1] <= '9';
  return octal ? std::string() : out;
}

std::optional<source::Expression> compiled(const std::string& text,
                                           const std::vector<ImportParameter>& known) {
  source::Symbols symbols;
  symbols.constants = {{"true", 1}, {"false", 0}};
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (known[i].kind == ImportParameter::Kind::type || known[i].kind == ImportParameter::Kind::enumeration)
      continue;
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
  const auto is_operator = [](const Token& t) {
    return t.kind == Token::Kind::symbol && !t.is("(") && !t.is(")");
  };
  std::string out;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool literal = tokens[i].kind == Token::Kind::literal;
    // Numbers without a sign wrap around, which expressions do not.
    if (literal && tokens.size() > 1 && tokens[i].text.find_first_of("uU") != std::string_view::npos)
      return {};
    const std::string piece = literal ? integer_text(tokens[i].text) : std::string(tokens[i].text);
    if (piece.empty()) return {};
    // An operator of two characters is two tokens, and one at the beginning is a sign.
    const bool blank = i > 0 && (i > 1 || !is_operator(tokens[0])) &&
                       is_operator(tokens[i - 1]) != is_operator(tokens[i]) && out.back() != '(' &&
                       piece != ")";
    out += (blank ? " " : "") + piece;
  }
  return compiled(out, known) ? out : std::string();
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
