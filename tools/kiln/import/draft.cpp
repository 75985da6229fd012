#include "tools/kiln/import/draft.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "expression/expression.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/import/arguments.hpp"
#include "tools/kiln/import/expression.hpp"
#include "tools/kiln/import/values.hpp"

namespace kiln::cli {
namespace {

using Kind = ImportParameter::Kind;
constexpr std::int64_t kGuessedInteger = 128;

/// A number of C++ without a suffix: "8", "-8", "0x8", "010".
std::optional<std::int64_t> whole_number(std::string_view text) {
  const bool negative = text.starts_with('-');
  std::string_view digits = text.substr(negative ? 1 : 0);
  int base = 10;
  if (digits.starts_with("0x") || digits.starts_with("0X"))
    base = 16;
  else if (digits.starts_with("0b") || digits.starts_with("0B"))
    base = 2;
  else if (digits.size() > 1 && digits[0] == '0')
    base = 8;
  if (base == 16 || base == 2) digits.remove_prefix(2);
  std::int64_t out = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out, base);
  if (error != std::errc{} || end != digits.data() + digits.size() || digits.empty() || digits[0] == '-')
    return std::nullopt;
  return negative ? -out : out;
}

/// True for NAME, A::NAME and ::A::NAME.
bool is_name_chain(const Tokens& text) {
  bool name = false;  // the last token is a name
  for (const Token& t : text) {
    if (name ? !t.is("::") : !t.is_word() && !(t.is("::") && &t == text.data())) return false;
    name = t.is_word();
  }
  return name;
}
/// True when `text` names the same as `qualified`, from a namespace in which it is written.
bool names(const Tokens& text, const std::string& qualified) {
  if (!is_name_chain(text)) return false;
  std::string name;
  for (const Token& t : text) name += t.text;
  return name == qualified || name == "::" + qualified || qualified.ends_with("::" + name);
}

bool is_integer_type(const std::string& type) {
  if (type == "auto" || type == "short" || type == "unsigned short" || type == "uint16_t" ||
      type == "int16_t")
    return true;
  const auto dtype = dtype_of(type);
  return dtype && type != "bool" && is_integer(*dtype);
}

/// The name of a dtype in a manifest, from "bf16" or "__nv_bfloat16"; empty when the text is no dtype.
std::string dtype_name(const std::string& text) {
  if (const auto dtype = dtype_from(text)) return std::string(to_string(*dtype));
  const auto dtype = dtype_of(text);
  if (!dtype || text == "bool" || text == "char") return {};
  // Types of their own, although they have the size of long long: a template may be specialised for one of them.
  for (const std::string_view other : {"long", "unsigned long", "size_t", "ptrdiff_t"})
    if (text.ends_with(other) && !text.ends_with("long long")) return {};
  return std::string(to_string(*dtype));
}

class ParameterDraft {
 public:
  ParameterDraft(ImportDraft& draft, const KernelDeclaration& kernel, const SourceTexts& texts,
                 const Assignments& given)
      : draft_(draft),
        kernel_(kernel),
        source_(texts, kernel),
        evidence_(source_.instantiations()),
        given_(given) {}

  void add(const DeclaredParameter& in, std::size_t position) {
    ImportParameter out;
    in_ = &in;
    out_ = &out;
    out.declared = in.declared;
    out.name = identifier_of(in.name.empty() ? "P" + std::to_string(position) : in.name);
    const auto taken = [&](const ImportParameter& p) { return p.name == out.name; };
    while (source::is_reserved_name(out.name) ||
           std::any_of(draft_.parameters.begin(), draft_.parameters.end(), taken))
      out.name += '_';
    doubt_.clear();
    value_ = given(in.name.empty() ? out.name : in.name);
    if (value_.empty()) take_evidence(position);
    out.guessed = (value_.empty() && in.fallback.empty()) || !doubt_.empty();
    if (!doubt_.empty()) out.ask = doubt_;
    if (in.kind == DeclaredParameter::Kind::type)
      type();
    else
      number_or_enum();
    draft_.parameters.push_back(std::move(out));
  }
  /// True when a manifest can express the default, or a value is known, or there is no default.
  bool expressible(const DeclaredParameter& in) const {
    if (in.fallback.empty() || !given(in.name).empty()) return true;
    if (in.name.empty()) return false;  // "typename = std::enable_if_t<...>"
    const std::string text = joined(in.fallback);
    if (in.kind == DeclaredParameter::Kind::type) return !dtype_name(text).empty() || dtype_parameter(text);
    if (!expression_of(in.fallback, draft_.parameters).empty()) return true;
    const EnumDeclaration* declared = source_.enumeration(in.type);
    return declared && !enumerator(*declared, in.fallback).empty();
  }

 private:
  std::string given(const std::string& name) const {
    for (const auto& [known, value] : given_)
      if (known == name) return value;
    return {};
  }
  /// Takes a certain value, or else a doubtful one as a guess.
  void take_evidence(std::size_t position) {
    const Evidence* doubtful = nullptr;
    for (const Evidence& found : evidence_) {
      if (position >= found.values.size() || found.values[position].empty()) continue;
      if (!found.doubts[position].empty()) {
        if (!doubtful) doubtful = &found;
        continue;
      }
      value_ = found.values[position];
      out_->evidence = found.place;
      return;
    }
    if (!doubtful || !in_->fallback.empty()) return;
    value_ = doubtful->values[position];
    doubt_ =
        "may be something else than " + value_ + " of " + doubtful->place + ": " + doubtful->doubts[position];
  }
  /// True when the value is the source's, not one of P=V.
  bool is_shown() const { return !out_->evidence.empty() || !doubt_.empty(); }
  /// The enumerator that a text names; empty when the text is something else.
  static std::string enumerator(const EnumDeclaration& declared, const Tokens& text) {
    const std::string outer = declared.qualified.substr(0, declared.qualified.rfind(':') + 1);
    for (const std::string& value : declared.values)
      if (names(text, declared.qualified + "::" + value) || names(text, outer + value)) return value;
    return {};
  }
  const ImportParameter* dtype_parameter(const std::string& name) const {
    for (const ImportParameter& p : draft_.parameters)
      if (p.name == name && p.kind == Kind::dtype) return &p;
    return nullptr;
  }
  void add_choice(const std::string& name, const std::string& cpp) {
    const auto same = [&](const auto& choice) { return choice.first == name; };
    if (std::none_of(out_->choices.begin(), out_->choices.end(), same)) out_->choices.emplace_back(name, cpp);
  }
  /// Every value that the source shows for this parameter.
  std::vector<std::string> shown() const {
    std::vector<std::string> out;
    if (!value_.empty()) out.push_back(value_);
    const std::size_t position = draft_.parameters.size();
    if (out_->evidence.empty()) return out;
    for (const Evidence& found : evidence_)
      if (position < found.values.size() && !found.values[position].empty() && found.doubts[position].empty())
        add_once(out, found.values[position]);
    return out;
  }

  void type() {
    const std::string fallback = joined(in_->fallback), fallback_dtype = dtype_name(fallback);
    const std::string dtype = value_.empty() ? fallback_dtype : dtype_name(value_);
    const ImportParameter* same = value_.empty() ? dtype_parameter(fallback) : nullptr;
    out_->kind = value_.empty() || !dtype.empty() ? Kind::dtype : Kind::type;
    if (same) {
      out_->choices = same->choices;
      out_->fallback = '"' + fallback + '"';
    } else if (!dtype.empty()) {
      for (const std::string& value : shown())
        if (const std::string other = dtype_name(value); !other.empty()) add_choice(other, "");
      if (!value_.empty()) out_->value = dtype;
      if (!fallback_dtype.empty()) add_choice(fallback_dtype, "");
      if (!fallback_dtype.empty()) out_->fallback = '"' + fallback_dtype + '"';
    } else if (!value_.empty()) {
      for (const std::string& value : shown()) add_choice(identifier_of(value), value);
      out_->value = identifier_of(value_);
    } else if (const std::string text = source_.qualified(in_->fallback); !text.empty()) {
      out_->kind = Kind::type;
      add_choice(identifier_of(text), text);
      out_->fallback = '"' + identifier_of(text) + '"';
    } else {
      return guessed_type();
    }
    out_->todo = out_->kind == Kind::dtype
                     ? "which dtypes the kernel takes (f16 needs cuda_fp16.h, bf16 cuda_bf16.h)"
                     : "the types that the kernel takes, as C++ text";
  }
  /// Asks for a type when the kernel shows that no number type will do.
  void guessed_type() {
    out_->value = "f32";
    add_choice("f32", "");
    if (draft_.includes.contains("cuda_fp16.h")) add_choice("f16", "");
    if (draft_.includes.contains("cuda_bf16.h")) add_choice("bf16", "");
    if (out_->choices.size() == 1) add_choice("f64", "");
    if (const auto members = kernel_.members.find(in_->name); members != kernel_.members.end()) {
      out_->ask =
          "must be a type with members " + base::join({members->second.begin(), members->second.end()}, ", ");
    } else {
      for (const DeclaredParameter& argument : kernel_.arguments) {
        if (argument.type != in_->name && argument.type != "const " + in_->name) continue;
        if (kernel_.called.contains(argument.name))
          out_->ask = "must be a type that can be called, as the argument " + argument.name + " is";
      }
    }
    if (out_->ask.empty()) out_->ask = "is a type that nothing in the source gives; float was tried";
    out_->todo = out_->ask;
  }

  void number_or_enum() {
    if (in_->type == "bool") return boolean();
    if (const EnumDeclaration* declared = source_.enumeration(in_->type)) return enumerated(*declared);
    if (is_integer_type(in_->type)) return integer();
    other();
  }
  void boolean() {
    out_->kind = Kind::boolean;
    if (const auto constant = constant_of(value_); constant && is_shown())
      value_ = *constant != 0 ? "true" : "false";
    if (value_ == "1" || value_ == "0") value_ = value_ == "1" ? "true" : "false";
    if (!value_.empty() && value_ != "true" && value_ != "false") {
      if (!is_shown()) refuse("true or false");
      return other();
    }
    const std::string text = expression_of(in_->fallback, draft_.parameters);
    if (!text.empty()) out_->fallback = '"' + text + '"';
    if (const auto constant = constant_of(text)) out_->fallback = *constant != 0 ? "true" : "false";
    out_->value = value_.empty() && text.empty() ? "false" : value_;
    out_->guessed = !doubt_.empty();  // both values compile
  }
  void integer() {
    if (!value_.empty() && !whole_number(value_)) return constant();
    out_->kind = Kind::integer;
    const std::string text = expression_of(in_->fallback, draft_.parameters);
    if (const auto fixed = whole_number(text))
      out_->fallback = std::to_string(*fixed);
    else if (!text.empty())
      out_->fallback = '"' + text + '"';
    auto number = whole_number(value_);
    if (!number && text.empty()) {
      number = kGuessedInteger;
      out_->ask =
          "is a number that nothing in the source gives; " + std::to_string(kGuessedInteger) + " was tried";
    }
    if (number) out_->value = std::to_string(*number);
    if (number) add_choice(out_->value, "");
    for (const std::string& value : shown())
      if (const auto one = whole_number(value)) add_choice(std::to_string(*one), "");
    if (const auto fixed = constant_of(text)) add_choice(std::to_string(*fixed), "");
    out_->todo = "which values the kernel takes: range or values = [...]";
  }
  /// An enumerator, a macro or another constant of the source in the place of a number.
  void constant() {
    if (!is_shown()) value_ = source_.qualified(source::tokens_of(value_));
    if (value_.empty()) refuse("an integer, or a constant that the source declares");
    other();
  }
  void enumerated(const EnumDeclaration& declared) {
    out_->kind = Kind::enumeration;
    for (const std::string& name : declared.values) add_choice(name, declared.qualified + "::" + name);
    take_text();
    std::string fallback = enumerator(declared, in_->fallback);
    if (const std::string text = source_.qualified(in_->fallback); fallback.empty() && !text.empty()) {
      fallback = identifier_of(text);
      add_choice(fallback, text);
    }
    if (!fallback.empty()) out_->fallback = '"' + fallback + '"';
    if (!out_->value.empty() || !fallback.empty() || declared.values.empty()) return;
    out_->value = declared.values[0];
    out_->guessed = true;
  }
  /// A value of a type that the source does not declare: a function, or an enum of a library.
  void other() {
    out_->kind = Kind::enumeration;
    if (value_.empty()) {
      add_choice("value_0", "static_cast<" + in_->type + ">(0)");
      out_->value = "value_0";
      out_->ask = "is a value of type " + in_->type + ", which the source does not declare; 0 was tried";
    }
    take_text();
    out_->todo = "the values of " + in_->type + ", as C++ text";
  }
  /// Takes the value, which is the name of a choice or C++ text.
  void take_text() {
    if (value_.empty()) return;
    const auto choice_of = [&](const std::string& text) {
      const Tokens tokens = source::tokens_of(text);
      for (const auto& [name, cpp] : out_->choices)
        if (text == name || names(tokens, cpp)) return name;
      if (const EnumDeclaration* declared = source_.enumeration(in_->type))
        return enumerator(*declared, tokens);
      return std::string();
    };
    out_->value = choice_of(value_);
    if (!out_->value.empty()) return;
    for (const std::string& value : shown())
      if (choice_of(value).empty()) add_choice(identifier_of(value), value);
    out_->value = identifier_of(value_);
  }
  [[noreturn]] void refuse(const std::string& allowed) const {
    throw Error(Errc::invalid_value, out_->name + '=' + base::quote(given(in_->name)) + ": '" +
                                         out_->declared + "' takes " + allowed);
  }

  ImportDraft& draft_;
  const KernelDeclaration& kernel_;
  const SourceValues source_;
  const std::vector<Evidence> evidence_;
  const Assignments& given_;
  const DeclaredParameter* in_ = nullptr;
  ImportParameter* out_ = nullptr;
  std::string value_;  ///< given, or shown by the source
  std::string doubt_;  ///< why the value that the source shows may be another one
};

/// NVRTC's errors about these words in C++17 do not always name them.
bool has_cpp20_words(const SourceTexts& texts) {
  const auto is_new = [](std::string_view word) {
    return word == "concept" || word == "requires" || word == "consteval" || word == "constinit";
  };
  for (const SourceText& text : texts.all())
    for (std::size_t i = 0; i < text.tokens.size(); ++i)
      if (is_new(text.tokens[i].text) && text.is_seen(i) == Conditions::Truth::yes) return true;
  return false;
}

[[noreturn]] void not_importable(const KernelDeclaration& kernel, const std::string& what) {
  throw Error(Errc::source, "kernel " + base::quote(kernel.qualified()) + " at line " +
                                std::to_string(kernel.line) + " cannot be imported: " + what +
                                ". Write a kernel with a fixed list that calls it, and import that kernel");
}

void check(const KernelDeclaration& kernel, const Assignments& given) {
  for (const DeclaredParameter& p : kernel.parameters) {
    const std::string declared = base::quote(p.declared);
    if (p.kind == DeclaredParameter::Kind::pack)
      not_importable(kernel, declared + " is a pack, and a manifest's parameters are a fixed list");
    if (p.kind == DeclaredParameter::Kind::template_template)
      not_importable(kernel, declared + " is a template, and a manifest's parameters are values and types");
  }
  for (const DeclaredParameter& a : kernel.arguments)
    if (a.kind == DeclaredParameter::Kind::pack)
      not_importable(kernel,
                     base::quote(a.declared) + " is a pack, and a kernel's arguments are a fixed list");
  std::vector<std::string> known;
  for (const DeclaredParameter& p : kernel.parameters) known.push_back(p.name);
  for (const auto& [name, value] : given) {
    if (std::find(known.begin(), known.end(), name) != known.end() && !name.empty()) continue;
    throw Error(Errc::unknown_parameter,
                "kernel " + base::quote(kernel.qualified()) + " has no template parameter " +
                    base::quote(name) + base::did_you_mean(name, known) +
                    "; it has: " + (known.empty() ? "none" : base::join(known, " ")));
  }
}

void draft_parameters(ImportDraft& draft, const KernelDeclaration& kernel, const SourceTexts& texts,
                      const Assignments& given) {
  ParameterDraft parameters(draft, kernel, texts, given);
  // Trailing parameters with defaults keep the source's own defaults from the first one that a manifest
  // cannot express.
  const auto& all = kernel.parameters;
  std::size_t needed = all.size();
  const auto is_given = [&](const DeclaredParameter& p) {
    return std::any_of(given.begin(), given.end(), [&](const auto& g) { return g.first == p.name; });
  };
  while (needed > 0 && !all[needed - 1].fallback.empty() && !is_given(all[needed - 1])) --needed;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i >= needed && !parameters.expressible(all[i])) {
      for (; i < all.size(); ++i) draft.left_out.push_back(all[i].declared);
      return;
    }
    parameters.add(all[i], i);
  }
}

/// The kernel's type, with {P} for its parameters. It distinguishes overloads.
std::string function_type(const ImportDraft& draft, const KernelDeclaration& kernel) {
  std::vector<std::string> list;
  for (const DeclaredParameter& argument : kernel.arguments) {
    std::string& out = list.emplace_back();
    for (const Token& t : source::tokens_of(argument.type)) {
      std::string piece;  // a brace of C++ is doubled to be literal
      for (const char c : t.text) piece += (c == '{' || c == '}') ? std::string(2, c) : std::string(1, c);
      for (std::size_t i = 0; i < draft.parameters.size(); ++i)
        if (t.is(kernel.parameters[i].name)) piece = '{' + draft.parameters[i].name + '}';
      const bool blank = t.is_word() && !out.empty() && base::is_identifier_character(out.back());
      out += (blank ? " " : "") + piece;
    }
  }
  return "void (*)(" + base::join(list, ", ") + ')';
}

std::string instantiation(const ImportDraft& draft, const KernelDeclaration& kernel, bool overloaded) {
  std::string out = kernel.qualified();
  if (kernel.is_template) {
    std::vector<std::string> list;
    for (const ImportParameter& p : draft.parameters) list.push_back('{' + p.name + '}');
    out += '<' + base::join(list, ", ") + '>';
  }
  return overloaded ? "static_cast<" + function_type(draft, kernel) + ">(&" + out + ')' : out;
}

std::vector<std::string> expressions(const std::vector<Tokens>& texts, std::size_t most,
                                     const std::vector<ImportParameter>& known) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < texts.size() && i < most; ++i) {
    const std::string text = expression_of(texts[i], known);
    if (text.empty()) return {};
    out.push_back(text);
  }
  return out;
}

}  // namespace

bool has(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}
bool add_once(std::vector<std::string>& list, const std::string& text) {
  if (has(list, text)) return false;
  list.push_back(text);
  return true;
}

const char* name_of(ImportParameter::Kind kind) noexcept {
  constexpr const char* kNames[] = {"dtype", "int", "bool", "enum", "type"};
  return kNames[static_cast<std::size_t>(kind)];
}

ImportDraft draft_of(const KernelDeclaration& kernel, const SourceTexts& texts, bool overloaded,
                     const Assignments& given) {
  check(kernel, given);
  ImportDraft out;
  out.kernel = kernel;
  out.define = texts.define();
  out.includes = texts.included_headers();
  out.cpp20 = has_cpp20_words(texts);
  draft_parameters(out, kernel, texts, given);
  out.instantiate = instantiation(out, kernel, overloaded);
  out.block = expressions(kernel.bounds, 1, out.parameters);
  out.cluster = expressions(kernel.cluster, 3, out.parameters);
  return out;
}

}  // namespace kiln::cli
