#include "tools/kiln/import/arguments.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include "base/text.hpp"
#include "expression/expression.hpp"
#include "kiln/error.hpp"
#include "manifest/toml/tree.hpp"
#include "tools/kiln/import/expression.hpp"

namespace kiln::cli {
namespace {

struct DtypeNames {
  Dtype dtype;
  std::string_view vector;  ///< of a type such as "float4", without its digit
  std::array<std::string_view, 5> names;
};
constexpr DtypeNames kDtypeNamesInCpp[] = {
    {Dtype::f32, "float", {"float"}},
    {Dtype::f64, "double", {"double"}},
    {Dtype::f16, "__half", {"__half", "half", "nv_half"}},
    {Dtype::bf16, "__nv_bfloat16", {"__nv_bfloat16", "nv_bfloat16"}},
    {Dtype::e4m3, "", {"__nv_fp8_e4m3"}},
    {Dtype::e5m2, "", {"__nv_fp8_e5m2"}},
    {Dtype::ue8m0, "", {"__nv_fp8_e8m0"}},
    {Dtype::i8, "char", {"signed char", "char", "int8_t"}},
    {Dtype::u8, "uchar", {"unsigned char", "uint8_t", "bool"}},
    {Dtype::i32, "int", {"int", "int32_t", "signed"}},
    {Dtype::u32, "uint", {"unsigned", "unsigned int", "uint32_t", "uint"}},
    {Dtype::i64, "", {"long", "long long", "int64_t", "ptrdiff_t"}},
    {Dtype::u64, "", {"unsigned long", "unsigned long long", "uint64_t", "size_t"}}};

/// A type without const, and what it points to.
struct PlainType {
  std::string text;
  int pointers = 0;
  bool points_to_const = false;
};
PlainType plain_type(const std::string& text) {
  PlainType out;
  std::string word;
  int angles = 0;
  for (const Token& t : source::tokens_of(text)) {
    if (t.is("<")) ++angles;
    if (t.is(">")) --angles;
    if (angles == 0 && (t.is("*") || t.is("&"))) {
      if (out.pointers++ == 0) out.points_to_const = word == "const";
    } else if (t.is("const") && angles == 0) {
      word = "const";
    } else if (out.pointers == 0) {  // behind the stars stand only qualifiers
      const bool blank = !out.text.empty() && base::is_identifier_character(out.text.back()) &&
                         base::is_identifier_character(t.text.front());
      out.text += (blank ? " " : "") + std::string(t.text);
    }
  }
  if (out.text.ends_with('(')) out.text = "void";  // a pointer to a function
  if (out.pointers > 0 && !out.points_to_const) out.points_to_const = text.starts_with("const ");
  return out;
}

/// "void f<float>(float const*, int)" -> the types of the arguments; empty when the name has none.
std::vector<std::string> argument_types(const std::string& lowered_name) {
  const std::string name = demangled(lowered_name);
  const Tokens tokens = source::tokens_of(name);
  const source::TokenView view(tokens);
  std::vector<std::string> out;
  // The arguments' parentheses are the last ones; others stand in template arguments.
  std::size_t open = tokens.size();
  for (std::size_t i = 0; i < tokens.size();) {
    const bool group = tokens[i].is("(");
    if (group) open = i;
    i = group               ? view.after_group(i, tokens.size())
        : tokens[i].is("<") ? std::max(view.after_angles(i, tokens.size()), i + 1)
                            : i + 1;
  }
  if (tokens.empty() || !tokens.back().is(")")) return out;
  for (const auto& [begin, end] : view.pieces(open + 1, tokens.size() - 1)) {
    const char* const from = tokens[begin].text.data();
    out.emplace_back(from, tokens[end - 1].text.data() + tokens[end - 1].text.size());
  }
  return out;
}

class ArgumentDraft {
 public:
  explicit ArgumentDraft(const ImportDraft& draft) : draft_(draft) {}

  /// `compiled` is the type in the image, empty when it is not known.
  ImportArgument read(const DeclaredParameter& in, const std::string& compiled, std::uint32_t bytes) const {
    ImportArgument out;
    out.declared = in.declared;
    out.bytes = bytes;
    const PlainType declared = plain_type(in.type);
    const PlainType type = compiled.empty() ? declared : plain_type(compiled);
    if (type.pointers > 0) {
      pointer(out, type, declared);
    } else {
      value(out, type, declared);
    }
    if (out.type.size() == 3 && !in.fallback.empty()) take_default(out, in.fallback);
    return out;
  }

 private:
  const ImportParameter* dtype_parameter(const std::string& name) const {
    for (std::size_t i = 0; i < draft_.parameters.size(); ++i)
      if (draft_.parameters[i].kind == ImportParameter::Kind::dtype &&
          draft_.kernel.parameters[i].name == name)
        return &draft_.parameters[i];
    return nullptr;
  }
  bool depends_on_parameters(const PlainType& type) const {
    const Tokens words = source::tokens_of(type.text);
    return std::any_of(draft_.kernel.parameters.begin(), draft_.kernel.parameters.end(),
                       [&](const DeclaredParameter& p) {
                         return std::any_of(words.begin(), words.end(),
                                            [&](const Token& t) { return !p.name.empty() && t.is(p.name); });
                       });
  }
  void pointer(ImportArgument& out, const PlainType& type, const PlainType& declared) const {
    out.writes = !type.points_to_const;
    out.type = "ptr<void>";
    const bool vector = !type.text.empty() && type.text.back() >= '1' && type.text.back() <= '4';
    if (type.pointers > 1) {
      out.todo = "an array of pointers in device memory; ";
    } else if (const ImportParameter* parameter = dtype_parameter(declared.text)) {
      out.type = "ptr<" + parameter->name + '>';
    } else if (const auto dtype = dtype_of(type.text)) {
      out.type = "ptr<" + std::string(to_string(*dtype)) + '>';
    } else if (const auto element = vector ? element_of(type.text) : std::nullopt) {
      out.type = "ptr<" + std::string(to_string(*element)) + '>';
      out.todo = std::string(1, type.text.back()) + " elements for each " + type.text + "; ";
    } else if (type.text != "void") {
      out.todo = "elements are " + type.text + ": its shape counts bytes; ";
    }
    out.todo += "shape: how many elements, as an expression";
  }
  /// The element of "float4" or "half2".
  static std::optional<Dtype> element_of(std::string text) {
    if (text == "half2") text = "__half2";
    for (const DtypeNames& known : kDtypeNamesInCpp)
      if (!known.vector.empty() && text.substr(0, text.size() - 1) == known.vector) return known.dtype;
    return std::nullopt;
  }
  void value(ImportArgument& out, const PlainType& type, const PlainType& declared) const {
    const auto is = [&](std::string_view a, std::string_view b) {
      return declared.text == a || declared.text == b;
    };
    const std::string base = type.text.substr(0, type.text.find("_st"));
    if (base == "CUtensorMap" || base == "cute::TmaDescriptor") {
      out.type = "tensormap";
      out.todo = "each call passes a CUtensorMap; a [[tensormap]] has kiln make it from a pointer instead";
    } else if (is("cudaTextureObject_t", "CUtexObject")) {
      out.type = "texture";
    } else if (is("cudaSurfaceObject_t", "CUsurfObject")) {
      out.type = "surface";
    } else if (const auto dtype = dtype_of(type.text);
               dtype && is_number(*dtype) && !depends_on_parameters(declared)) {
      out.type = to_string(*dtype);
      out.todo = "what 'kiln run' passes";
    } else {
      out.type = depends_on_parameters(declared) || out.bytes == 0
                     ? "struct"
                     : "struct<" + std::to_string(out.bytes) + '>';
      out.todo = declared.text + ", passed as bytes";
    }
  }
  static bool is_number(Dtype dtype) {
    return dtype == Dtype::i32 || dtype == Dtype::u32 || dtype == Dtype::i64 || dtype == Dtype::u64 ||
           dtype == Dtype::f32 || dtype == Dtype::f64;
  }
  /// Takes a number as default: "4", "-1", "1e-5f".
  static void take_default(ImportArgument& out, const Tokens& fallback) {
    const bool real = out.type[0] == 'f';
    std::string text = joined(fallback);
    text.resize(text.find_last_not_of(real ? "fF" : "uUlL") + 1);
    if (real && text.find_first_of(".eE") == std::string::npos) text += ".0";
    try {
      using Kind = source::TomlValue::Kind;
      const source::TomlValue* value = source::parse_toml("value = " + text, "").find("value");
      if (value && value->kind == (real ? Kind::real : Kind::integer)) out.value = text;
    } catch (const Error&) {  // text that is no number of TOML, such as "1." and "010"
    }
  }

  const ImportDraft& draft_;
};

template <class Three>
std::vector<std::string> dimensions(const Three& three) {
  std::vector<std::string> out;
  for (const auto v : three) out.push_back(std::to_string(std::max<std::uint32_t>(v, 1)));
  while (out.size() > 1 && out.back() == "1") out.pop_back();
  return out;
}

}  // namespace

std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? text.get() : std::string();
}

std::optional<Dtype> dtype_of(std::string type) {
  for (const char* prefix : {"std::", "cuda::std::", "::", "kiln::"})
    if (type.starts_with(prefix)) type.erase(0, std::string_view(prefix).size());
  for (const DtypeNames& known : kDtypeNamesInCpp)
    if (!type.empty() && std::find(known.names.begin(), known.names.end(), type) != known.names.end())
      return known.dtype;
  return dtype_from(type);  // the names in the slim headers
}

void draft_arguments(ImportDraft& draft, const compile::Facts* image) {
  const KernelDeclaration& kernel = draft.kernel;
  draft.arguments.clear();
  std::vector<std::string> taken;
  for (const ImportParameter& p : draft.parameters) taken.push_back(p.name);
  const std::vector<std::string> types =
      image ? argument_types(image->lowered_name) : std::vector<std::string>{};
  const std::size_t count = image ? image->arguments.size() : kernel.arguments.size();
  const bool hidden = count != kernel.arguments.size();  // a macro hides some
  const ArgumentDraft read(draft);
  for (std::size_t i = 0; i < count; ++i) {
    DeclaredParameter declared;
    if (i < kernel.arguments.size() && !hidden) declared = kernel.arguments[i];
    std::uint32_t bytes = 0;
    if (image)
      for (const compile::ArgumentFact& fact : image->arguments)
        if (fact.ordinal == i) bytes = fact.size;
    const std::string type = types.size() == count ? types[i] : std::string();
    if (hidden) declared.declared = declared.type = type;
    ImportArgument argument = read.read(declared, type, bytes);
    argument.name = declared.name.empty() ? "arg" + std::to_string(i) : identifier_of(declared.name);
    if (hidden && argument.todo.empty()) argument.todo = "its name, which a macro hides";
    while (source::is_reserved_name(argument.name) ||
           std::find(taken.begin(), taken.end(), argument.name) != taken.end())
      argument.name += '_';
    taken.push_back(argument.name);
    draft.arguments.push_back(std::move(argument));
  }
  if (!image) return;
  if (image->required_block[0] > 0) draft.block = dimensions(image->required_block);
  if (image->cluster[0] > 0 && draft.cluster.empty()) draft.cluster = dimensions(image->cluster);
}

}  // namespace kiln::cli
