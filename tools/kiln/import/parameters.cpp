// Template parameters, from their declarations to a manifest's [param.*].
#include "tools/kiln/import/parameters.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "expression/expression.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/import/draft.hpp"
#include "tools/kiln/import/types.hpp"

namespace kiln::cli {
namespace {

using Kind = ImportParameter::Kind;
constexpr std::int64_t kGuess = 128;

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return out;
}

/// "Params", "KernelTraits": names of types that are no element types.
bool names_a_struct(const std::string& name) {
  for (const char* part : {"Param", "Arg", "Trait", "Config", "Policy", "Shape", "Problem", "Storage", "Func",
                           "Tensor", "Layout", "Variant", "Kernel", "Scheduler", "Epilogue", "Mainloop"})
    if (name.find(part) != std::string::npos) return true;
  return name == "Op" || name.ends_with("Op");
}
bool names_an_index(const std::string& name) {
  for (const char* part : {"Id", "Index", "Idx", "Int", "int", "offset", "Offset"})
    if (name.find(part) != std::string::npos) return true;
  return false;
}
bool names_an_element(const std::string& name) {
  return name == "T" || name.starts_with("DType") || name.ends_with("_t") || name.ends_with("Type") ||
         name.ends_with("T") || name.starts_with("T");
}

class ParameterDraft {
 public:
  ParameterDraft(ImportDraft& draft, const KernelDeclaration& kernel, const CudaSource& source,
                 const Assignments& given)
      : draft_(draft), kernel_(kernel), source_(source), given_(given) {}

  void add(const TemplateParameter& in, std::size_t position) {
    ImportParameter out;
    out.name = in.name.empty() ? "P" + std::to_string(position) : in.name;
    out.declared = in.declared;
    out.name = identifier_of(out.name);
    const auto taken = [&](const ImportParameter& p) { return p.name == out.name; };
    while (source::is_reserved_name(out.name) ||
           std::any_of(draft_.parameters.begin(), draft_.parameters.end(), taken))
      out.name += '_';
    in_ = &in;
    out_ = &out;
    wanted_ = wanted(in.name.empty() ? out.name : in.name);
    if (in.kind == TemplateParameter::Kind::type)
      type();
    else
      value();
    if (out.value.empty() && out.fallback.empty()) out.value = first_value();
    draft_.parameters.push_back(std::move(out));
  }
  /// True when a manifest can express the default, or a value was given, or there is no default.
  bool expressible(const TemplateParameter& in) const {
    if (in.fallback.empty() || !wanted(in.name).empty()) return true;
    if (in.name.empty()) return false;  // "typename = std::enable_if_t<...>"
    if (in.kind == TemplateParameter::Kind::type) {
      const PlainType type = plain_type(in.fallback, source_);
      return type.pointers == 0 && (dtype_of(type) || known_dtype(type.word()));
    }
    if (!expression_of(in.fallback, draft_.parameters).empty()) return true;
    const EnumDeclaration* declared = enumeration(in);
    return declared && std::find(declared->values.begin(), declared->values.end(), in.fallback.back().text) !=
                           declared->values.end();
  }

 private:
  std::string wanted(const std::string& name) const {
    for (const auto& [given, value] : given_)
      if (given == name) return value;
    return {};
  }
  bool known_dtype(const std::string& name) const {
    return std::any_of(draft_.parameters.begin(), draft_.parameters.end(),
                       [&](const ImportParameter& p) { return p.name == name && p.kind == Kind::dtype; });
  }
  const EnumDeclaration* enumeration(const TemplateParameter& in) const {
    const PlainType type = plain_type(in.type, source_);
    if (type.words.empty()) return nullptr;
    const auto found = source_.enums.find(type.words.back().text);
    return found == source_.enums.end() ? nullptr : &found->second;
  }
  std::string first_value() const {
    if (out_->kind == Kind::integer) return std::to_string(kGuess);
    if (out_->kind == Kind::boolean) return "false";
    return out_->choices.empty() ? std::string() : out_->choices.front().first;
  }
  void add_choice(const std::string& name, const std::string& cpp) {
    const auto same = [&](const auto& choice) { return choice.first == name; };
    if (std::none_of(out_->choices.begin(), out_->choices.end(), same)) out_->choices.emplace_back(name, cpp);
  }

  bool is_element() const {
    const std::string& name = in_->name;
    if (!wanted_.empty()) return dtype_from(wanted_).has_value();
    if (names_a_struct(name)) return false;
    const PlainType fallback = plain_type(in_->fallback, source_);
    if (!in_->fallback.empty()) return dtype_of(fallback) || known_dtype(fallback.word());
    for (const FunctionParameter& argument : kernel_.arguments) {
      const PlainType type = plain_type(argument.type, source_);
      if (type.word() == name) return !argument.grid_constant || type.pointers > 0;
    }
    return names_an_element(name);
  }
  bool includes(std::string_view header) const {
    return std::find(source_.includes.begin(), source_.includes.end(), header) != source_.includes.end();
  }
  void type() {
    if (!is_element()) return opaque_type();
    out_->kind = Kind::dtype;
    if (names_an_index(in_->name)) {
      for (const char* name : {"i32", "i64"}) add_choice(name, "");
    } else {
      add_choice("f32", "");
      if (includes("cuda_fp16.h") || includes("cuda_bf16.h")) {
        if (includes("cuda_fp16.h")) add_choice("f16", "");
        if (includes("cuda_bf16.h")) add_choice("bf16", "");
      } else {
        add_choice("f64", "");
      }
    }
    out_->todo =
        "which dtypes the kernel takes: only one was compiled (f16 needs cuda_fp16.h, bf16 cuda_bf16.h: see "
        "[compile] preinclude)";
    if (!wanted_.empty()) add_choice(wanted_, ""), out_->value = wanted_;
    if (in_->fallback.empty()) return;
    const PlainType fallback = plain_type(in_->fallback, source_);
    if (const auto dtype = dtype_of(fallback)) {
      add_choice(std::string(to_string(*dtype)), "");
      out_->fallback = quoted(std::string(to_string(*dtype)));
    } else if (known_dtype(fallback.word())) {
      out_->fallback = quoted(fallback.word());
      for (const ImportParameter& p : draft_.parameters)
        if (p.name == fallback.word())
          for (const auto& choice : p.choices) add_choice(choice.first, "");
    }
  }
  void opaque_type() {
    out_->kind = Kind::type;
    const std::string text = wanted_.empty() ? std::string("float") : wanted_;
    add_choice(identifier_of(text), text);
    out_->todo = "the types that the kernel takes, as C++ text";
    out_->value = wanted_.empty() ? std::string() : identifier_of(text);
  }

  void value() {
    const PlainType type = plain_type(in_->type, source_);
    if (is_boolean(type) && type.pointers == 0) return boolean();
    if (const EnumDeclaration* declared = enumeration(*in_)) return enumerated(*declared);
    if (is_integer(type) && type.pointers == 0) return integer();
    other(type);
  }
  void boolean() {
    out_->kind = Kind::boolean;
    if (!wanted_.empty() && wanted_ != "true" && wanted_ != "false") refuse("true or false");
    out_->value = wanted_;
    const std::string text = expression_of(in_->fallback, draft_.parameters);
    out_->fallback = text.empty() ? text : quoted(text);
    if (const auto constant = constant_of(text)) out_->fallback = *constant != 0 ? "true" : "false";
  }
  void integer() {
    out_->kind = Kind::integer;
    const auto given = whole_number(wanted_);
    if (!wanted_.empty() && !given) refuse("an integer");
    const std::string text = expression_of(in_->fallback, draft_.parameters);
    const auto literal = whole_number(text);
    for (const auto& value : {given, constant_of(text)}) {
      if (!value) continue;
      out_->least = std::min(out_->least, *value);
      out_->most = std::max(out_->most, *value);
    }
    out_->value = wanted_;
    out_->fallback = literal || text.empty() ? text : quoted(text);
    out_->todo = "which values the kernel takes: range or values = [...]";
  }
  void enumerated(const EnumDeclaration& declared) {
    out_->kind = Kind::enumeration;
    for (const std::string& name : declared.values) add_choice(name, declared.qualified + "::" + name);
    take_given();
    if (in_->fallback.empty()) return;
    const std::string& name = in_->fallback.back().text;
    if (std::find(declared.values.begin(), declared.values.end(), name) != declared.values.end())
      out_->fallback = quoted(name);
  }
  /// A value whose type this source does not declare is taken for an enum.
  void other(const PlainType& type) {
    out_->kind = Kind::enumeration;
    if (wanted_.empty()) add_choice("value_0", "static_cast<" + type.text() + ">(0)");
    take_given();
    out_->todo = "the values of " + type.text() + ", which this source does not declare, as C++ text";
  }
  /// Takes the given value, which is the name of a choice or C++ text.
  void take_given() {
    if (wanted_.empty()) return;
    const std::string last = wanted_.substr(wanted_.rfind(':') + 1);
    const auto same = [&](const auto& choice) { return choice.first == last; };
    const bool known = std::any_of(out_->choices.begin(), out_->choices.end(), same);
    out_->value = known ? last : identifier_of(wanted_);
    if (!known) add_choice(out_->value, wanted_);
  }
  [[noreturn]] void refuse(const std::string& allowed) const {
    throw Error(Errc::invalid_value,
                out_->name + '=' + base::quote(wanted_) + ": '" + out_->declared + "' takes " + allowed);
  }
  static std::string quoted(const std::string& text) { return '"' + text + '"'; }

  ImportDraft& draft_;
  const KernelDeclaration& kernel_;
  const CudaSource& source_;
  const Assignments& given_;
  const TemplateParameter* in_ = nullptr;
  ImportParameter* out_ = nullptr;
  std::string wanted_;
};

[[noreturn]] void not_importable(const KernelDeclaration& kernel, const std::string& what) {
  throw Error(Errc::source, "kernel " + base::quote(kernel.qualified()) + " at line " +
                                std::to_string(kernel.line) + " cannot be imported: " + what +
                                ". Write a kernel with a fixed list that calls it, and import that kernel");
}

}  // namespace

void draft_parameters(ImportDraft& draft, const KernelDeclaration& kernel, const CudaSource& source,
                      const Assignments& given) {
  for (const TemplateParameter& p : kernel.parameters) {
    const std::string declared = base::quote(p.declared);
    if (p.kind == TemplateParameter::Kind::pack)
      not_importable(kernel, declared + " is a pack, and a manifest's parameters are a fixed list");
    if (p.kind == TemplateParameter::Kind::template_template)
      not_importable(kernel, declared + " is a template, and a manifest's parameters are values and types");
  }
  for (const FunctionParameter& a : kernel.arguments)
    if (a.pack)
      not_importable(kernel,
                     base::quote(a.declared) + " is a pack, and a kernel's arguments are a fixed list");
  std::vector<std::string> known;
  for (const TemplateParameter& p : kernel.parameters) known.push_back(p.name);
  for (const auto& [name, value] : given) {
    if (std::find(known.begin(), known.end(), name) == known.end() || name.empty()) {
      throw Error(Errc::unknown_parameter,
                  "kernel " + base::quote(kernel.qualified()) + " has no template parameter " +
                      base::quote(name) + base::did_you_mean(name, known) +
                      "; it has: " + (known.empty() ? "none" : base::join(known, " ")));
    }
  }
  ParameterDraft parameters(draft, kernel, source, given);
  // Trailing parameters with defaults keep the source's own defaults from the first one that a manifest
  // cannot express.
  const auto& all = kernel.parameters;
  std::size_t needed = all.size();
  const auto is_given = [&](const TemplateParameter& p) {
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

}  // namespace kiln::cli
