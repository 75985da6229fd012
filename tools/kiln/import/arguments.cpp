// A kernel's arguments, as far as its declaration tells them.
#include "tools/kiln/import/arguments.hpp"

#include <algorithm>
#include <charconv>

#include "expression/expression.hpp"
#include "tools/kiln/import/draft.hpp"
#include "tools/kiln/import/types.hpp"

namespace kiln::cli {
namespace {

class ArgumentDraft {
 public:
  ArgumentDraft(const ImportDraft& draft, const KernelDeclaration& kernel, const CudaSource& source)
      : draft_(draft), kernel_(kernel), source_(source) {}

  ImportArgument read(const FunctionParameter& in) {
    ImportArgument out;
    out.declared = in.declared;
    const PlainType type = plain_type(in.type, source_);
    const std::size_t words = type.words.size();
    const bool of_function =
        words > 2 && type.words[words - 1].is(")") && type.words[words - 2].is("*");  // "void(*)"
    if (type.pointers > 0 || of_function)
      pointer(out, type);
    else
      value(out, type);
    if (out.type.size() == 3) take_default(out, in.fallback);
    return out;
  }

 private:
  const ImportParameter* dtype_parameter(const std::string& name) const {
    for (std::size_t i = 0; i < draft_.parameters.size(); ++i)
      if (draft_.parameters[i].kind == ImportParameter::Kind::dtype && kernel_.parameters[i].name == name)
        return &draft_.parameters[i];
    return nullptr;
  }
  bool depends_on_parameters(const PlainType& type) const {
    return std::any_of(type.words.begin(), type.words.end(), [&](const Token& t) {
      return std::any_of(kernel_.parameters.begin(), kernel_.parameters.end(),
                         [&](const TemplateParameter& p) { return !p.name.empty() && t.is(p.name); });
    });
  }
  /// Takes a number as default: "4", "-1", "1e-5f".
  static void take_default(ImportArgument& out, const Tokens& fallback) {
    if (fallback.empty() || fallback.back().kind != Token::Kind::number || fallback.size() > 2) return;
    if (fallback.size() == 2 && !fallback[0].is("-")) return;
    const std::string sign = fallback.size() == 2 ? "-" : "";
    if (out.type[0] != 'f') {
      const std::string text = expression_of({fallback.back()}, {});
      if (!text.empty()) out.value = sign + text;
      return;
    }
    std::string text = fallback.back().text;
    if (text.back() == 'f' || text.back() == 'F') text.pop_back();
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size()) return;
    const bool real =
        text.find_first_of(".eE") != std::string::npos;  // TOML wants digits on both sides of a dot
    if (!real || (text.front() != '.' && text.find(".e") == std::string::npos && text.back() != '.'))
      out.value = sign + text + (real ? "" : ".0");
  }
  void pointer(ImportArgument& out, const PlainType& type) const {
    out.writes = !type.points_to_const;
    out.type = "ptr<void>";
    if (type.pointers > 1) {
      out.todo = "an array of pointers in device memory; ";
    } else if (const ImportParameter* parameter = dtype_parameter(type.word())) {
      out.type = "ptr<" + parameter->name + '>';
    } else if (const auto dtype = dtype_of(type)) {
      out.type = "ptr<" + std::string(to_string(*dtype)) + '>';
    } else if (const auto vector = vector_element(type)) {
      out.type = "ptr<" + std::string(to_string(vector->dtype)) + '>';
      out.todo = std::to_string(vector->count) + " elements for each " + type.text() + "; ";
    } else if (type.text() != "void") {
      out.todo = "elements are " + type.text() + ": its shape counts bytes; ";
    }
    out.todo += "shape: how many elements, as an expression";
  }
  void value(ImportArgument& out, const PlainType& type) const {
    out.type = value_type(type);
    if (!out.type.empty()) {
      if (out.type != "tensormap" && out.type != "texture" && out.type != "surface")
        out.todo = "what 'kiln run' passes";
      return;
    }
    if (const auto declared = source_.enums.find(type.word()); declared != source_.enums.end()) {
      out.type = "i32";
      out.is_enum = true;
      out.value = "0";
      out.todo = "the number of one of " + declared->second.qualified;
      return;
    }
    out.sized_by_image = true;
    out.type = depends_on_parameters(type) ? "struct" : "struct<4>";
    out.todo = type.text() + ", passed as bytes";
  }

  const ImportDraft& draft_;
  const KernelDeclaration& kernel_;
  const CudaSource& source_;
};

}  // namespace

void draft_arguments(ImportDraft& draft, const KernelDeclaration& kernel, const CudaSource& source) {
  ArgumentDraft read(draft, kernel, source);
  std::vector<std::string> taken;
  for (const ImportParameter& p : draft.parameters) taken.push_back(p.name);
  for (std::size_t i = 0; i < kernel.arguments.size(); ++i) {
    ImportArgument argument = read.read(kernel.arguments[i]);
    argument.name = kernel.arguments[i].name.empty() ? "arg" + std::to_string(i)
                                                     : identifier_of(kernel.arguments[i].name);
    while (source::is_reserved_name(argument.name) ||
           std::find(taken.begin(), taken.end(), argument.name) != taken.end())
      argument.name += '_';
    taken.push_back(argument.name);
    draft.arguments.push_back(std::move(argument));
  }
}

}  // namespace kiln::cli
