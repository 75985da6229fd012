#include "tools/kiln/import/draft.hpp"
#include "tools/kiln/import/arguments.hpp"
#include "tools/kiln/import/brackets.hpp"
#include "tools/kiln/import/parameters.hpp"

#include <algorithm>
#include <optional>

#include "base/text.hpp"
#include "expression/expression.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

/// "128u" -> "128"; empty when it is no integer that expressions accept.
std::string integer_text(const std::string& number) {
  std::string out = number;
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

/// The text compiled as an expression of the manifest.
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

std::string doubled_braces(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c;
    if (c == '{' || c == '}') out += c;
  }
  return out;
}

/// The kernel's type, with {P} for its parameters. It distinguishes overloads.
std::string function_type(const ImportDraft& draft, const KernelDeclaration& kernel) {
  std::string out;
  for (const FunctionParameter& argument : kernel.arguments) {
    Tokens words = argument.type;
    for (Token& t : words) {
      t.text = doubled_braces(t.text);
      for (std::size_t i = 0; i < draft.parameters.size(); ++i)
        if (t.is_word() && t.text == kernel.parameters[i].name) t.text = '{' + draft.parameters[i].name + '}';
    }
    out += (out.empty() ? "" : ", ") + joined(words);
  }
  return "void (*)(" + out + ')';
}

std::string instantiation(const ImportDraft& draft, const KernelDeclaration& kernel, bool overloaded) {
  std::string out = kernel.qualified();
  if (kernel.is_template) {
    std::string list;
    for (const ImportParameter& p : draft.parameters) list += (list.empty() ? "{" : ", {") + p.name + '}';
    out += '<' + list + '>';
  }
  return overloaded ? "static_cast<" + function_type(draft, kernel) + ">(&" + out + ')' : out;
}

std::vector<std::string> expressions(const std::vector<std::string>& texts, std::size_t most,
                                     const std::vector<ImportParameter>& known) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < texts.size() && i < most; ++i) {
    const std::string text = expression_of(lex(texts[i], Branches::first).tokens, known);
    if (text.empty()) return {};
    out.push_back(text);
  }
  return out;
}

}  // namespace

const char* name_of(ImportParameter::Kind kind) noexcept {
  switch (kind) {
    case ImportParameter::Kind::dtype:
      return "dtype";
    case ImportParameter::Kind::integer:
      return "int";
    case ImportParameter::Kind::boolean:
      return "bool";
    case ImportParameter::Kind::enumeration:
      return "enum";
    case ImportParameter::Kind::type:
      break;
  }
  return "type";
}

std::string identifier_of(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool word = base::is_identifier_character(c);
    if (word)
      out += c;
    else if (!out.empty() && out.back() != '_')
      out += '_';
  }
  while (!out.empty() && out.back() == '_' && text.back() != '_') out.pop_back();
  if (out.empty() || (out[0] >= '0' && out[0] <= '9')) out.insert(0, "v");
  return out;
}

std::string expression_of(const Tokens& tokens, const std::vector<ImportParameter>& known) {
  std::string out;
  for (const Token& t : tokens) {
    std::string piece = t.text;
    if (t.kind == Token::Kind::number) {
      piece = integer_text(t.text);
    } else if (t.is_word()) {
      const bool parameter = std::any_of(known.begin(), known.end(), [&](const ImportParameter& p) {
        return p.name == t.text && p.kind != ImportParameter::Kind::type &&
               p.kind != ImportParameter::Kind::enumeration;
      });
      if (!parameter && piece != "true" && piece != "false" && piece != "sizeof") return {};
    } else if (t.kind == Token::Kind::literal) {
      return {};
    } else {
      constexpr std::string_view operators[] = {"(", ")",  "+",  "-",  "*",  "/",  "%",  "?", ":", "<",
                                                ">", "<=", ">=", "==", "!=", "&&", "||", "!", "<<"};
      if (std::find(std::begin(operators), std::end(operators), piece) == std::end(operators)) return {};
    }
    if (piece.empty()) return {};
    const bool tight =
        out.empty() || out.back() == '(' || piece == ")" || (piece == "(" && out.ends_with("sizeof"));
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

ImportDraft draft_of(const KernelDeclaration& kernel, const CudaSource& source, bool overloaded,
                     const Assignments& given) {
  ImportDraft out;
  out.kernel = kernel.text();
  out.line = kernel.line;
  draft_parameters(out, kernel, source, given);
  draft_arguments(out, kernel, source);
  out.instantiate = instantiation(out, kernel, overloaded);
  out.block = expressions(kernel.bounds, 1, out.parameters);
  out.cluster = expressions(kernel.cluster, 3, out.parameters);
  out.dynamic_shared = kernel.dynamic_shared;
  out.grid_sync = kernel.grid_sync;
  out.dependent_launch = kernel.dependent_launch;
  return out;
}

}  // namespace kiln::cli
