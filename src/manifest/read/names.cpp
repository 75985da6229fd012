#include "manifest/read/names.hpp"

#include <array>
#include <cstdint>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "manifest/read/order.hpp"
#include "manifest/read/parse.hpp"
#include "manifest/read/work_list.hpp"

namespace kiln::source {
namespace {

constexpr int kMaxDerives = 128, kMaxRuntime = 64, kMaxExports = 64;
constexpr std::uint32_t kMaxStructBytes = 32764;  // limit of all arguments together, from CUDA 12.1 on

int count_in(const TableReader& root, std::string_view key, int most) {
  const TomlValue* found = root.find(key);
  const std::size_t count = !found                                  ? 0
                            : found->kind == TomlValue::Kind::array ? found->items.size()
                                                                    : found->members.size();
  if (count > static_cast<std::size_t>(most))
    root.fail(key, std::to_string(count) + " entries; at most " + std::to_string(most));
  return static_cast<int>(count);
}

ArgumentType pointer_type(const Draft& draft, const TableReader& reader, const std::string& element) {
  ArgumentType out;
  if (element == "void") return out;
  if ((out.dtype = dtype_from(element))) return out;
  out.dtype_parameter = parameter_index(draft.out, element);
  if (out.dtype_parameter >= 0 &&
      draft.out.parameters[static_cast<std::size_t>(out.dtype_parameter)].kind == ParameterKind::dtype) {
    return out;
  }
  std::vector<std::string> known = {"void"};
  for (const ParameterSpec& p : draft.out.parameters) {
    if (p.kind == ParameterKind::dtype) known.push_back(p.name);
  }
  known.insert(known.end(), std::begin(kDtypeNames), std::end(kDtypeNames));
  reader.fail("type", base::quote(element) + " is no dtype and no dtype parameter" +
                          base::did_you_mean(element, known) + "; known: " + base::join(known, " "));
}

ArgumentType argument_type(const Draft& draft, const TableReader& reader) {
  using Type = ArgumentType::Kind;
  constexpr std::pair<std::string_view, Type> plain[] = {{"i32", Type::i32},
                                                         {"i64", Type::i64},
                                                         {"u32", Type::u32},
                                                         {"u64", Type::u64},
                                                         {"f32", Type::f32},
                                                         {"f64", Type::f64},
                                                         {"tensormap", Type::tensormap}};
  const std::string text = reader.need_line("type");
  ArgumentType out;
  for (const auto& [name, kind] : plain) {
    if (name != text) continue;
    out.kind = kind;
    return out;
  }
  if (text == "texture" || text == "surface") {
    out.kind = Type::u64;
    out.handle = text == "texture" ? ArgumentType::Handle::texture : ArgumentType::Handle::surface;
    return out;
  }
  if (text == "struct") {
    out.kind = Type::structure;
    return out;
  }
  const auto inside = [&](std::string_view prefix) {
    return text.substr(prefix.size(), text.size() - prefix.size() - 1);
  };
  if (text.starts_with("ptr<") && text.back() == '>') return pointer_type(draft, reader, inside("ptr<"));
  if (text.starts_with("struct<") && text.back() == '>') {
    const std::string bytes = inside("struct<");
    const bool digits =
        !bytes.empty() && bytes.size() <= 5 && bytes.find_first_not_of("0123456789") == std::string::npos;
    out.struct_bytes = digits ? static_cast<std::uint32_t>(std::stoul(bytes)) : 0;
    out.kind = Type::structure;
    if (out.struct_bytes >= 1 && out.struct_bytes <= kMaxStructBytes) return out;
    reader.fail("type", base::quote(text) + " must be struct<BYTES> with 1 to " +
                            std::to_string(kMaxStructBytes) + " bytes");
  }
  reader.fail(
      "type",
      base::quote(text) +
          " is unknown; allowed: ptr<P> ptr<dtype> ptr<void> i32 i64 u32 u64 f32 f64 struct<BYTES> struct "
          "tensormap texture surface");
}

/// The declared strides, or the strides of a contiguous array of the declared shape.
std::vector<std::string> stride_texts(const TableReader& reader) {
  std::vector<std::string> strides = reader.expression_texts("stride");
  const std::vector<std::string> shape = reader.expression_texts("shape");
  if (!strides.empty() || shape.empty()) return strides;
  std::string product = "1";
  for (auto it = shape.rbegin(); it != shape.rend(); ++it) {
    strides.insert(strides.begin(), product);
    product = product == "1" ? '(' + *it + ')' : '(' + *it + ") * " + product;
  }
  return strides;
}

}  // namespace

void lay_out_slots(Draft& draft, const TableReader& root) {
  draft.out.slots = {count_in(root, "param", kMaxParameters),
                     count_in(root, "derive", kMaxDerives),
                     count_in(root, "arg", kMaxArguments),
                     count_in(root, "runtime", kMaxRuntime),
                     count_run_values(draft),
                     count_in(root, "export", kMaxExports)};
}

void declare_arguments(Draft& draft, const TableReader& root) {
  if (const TomlValue* derive = root.find("derive")) {
    const TableReader reader(*derive, "[derive]", root.file());
    for (const auto& [name, value] : derive->members) {
      take_name(draft, reader, name, name, "a derive");
      draft.out.derives.emplace_back(name, Expression());
    }
  }
  for (const TomlValue* table : root.tables("arg")) {
    const TomlValue* name = table->find("name");
    const TableReader reader(
        *table,
        "[[arg]]" + (name && name->kind == TomlValue::Kind::string ? ' ' + base::quote(name->string) : ""),
        root.file(),
        {"name", "type", "access", "shape", "stride", "align", "doc", "value", "optional", "exists", "fill"});
    ArgumentSpec argument;
    argument.name = reader.need_line("name");
    take_name(draft, reader, "name", argument.name, "an argument");
    argument.type = argument_type(draft, reader);
    draft.out.arguments.push_back(std::move(argument));
  }
  if (const TomlValue* runtime = root.find("runtime")) {
    const TableReader reader(*runtime, "[runtime]", root.file());
    for (const auto& [name, value] : runtime->members) {
      take_name(draft, reader, name, name, "a run-time value");
      draft.out.runtime.push_back({name, "", {}});
    }
  }
}

namespace {

void add_constants(Symbols& symbols) {
  symbols.constants = {{"true", 1}, {"false", 0}};
  for (int i = 0; i < kDtypeCount; ++i) {
    symbols.constants.emplace(kDtypeNames[i], i);
    symbols.dtypes.emplace(kDtypeNames[i]);
  }
}

void add_parameters(Symbols& symbols, const Manifest& m) {
  for (std::size_t i = 0; i < m.parameters.size(); ++i) {
    const ParameterSpec& p = m.parameters[i];
    symbols.slots.emplace(p.name, static_cast<int>(i));
    if (p.kind == ParameterKind::dtype) symbols.dtypes.insert(p.name);
    if (p.kind != ParameterKind::enumeration && p.kind != ParameterKind::type) continue;
    for (const auto& choice : p.choices) symbols.constants.emplace(p.name + '.' + choice.name, choice.value);
  }
  for (std::size_t i = 0; i < m.derives.size(); ++i)
    symbols.slots.emplace(m.derives[i].first, m.slots.derive_slot(static_cast<int>(i)));
  int slot = m.slots.arch_slot();
  for (const char* name : {"arch", "arch.smem_sm", "arch.smem_block", "arch.regs"})
    symbols.slots.emplace(name, slot++);
}

std::string why_no_integer(const ArgumentSpec& argument, const Manifest& m) {
  return std::string("expressions know integers and pointers") +
         (argument.type.is_float() ? " (and [[require]] floating-point numbers)" : "") + ", and it is " +
         argument.type.to_string(m.parameters);
}

void add_arguments(Symbols& symbols, const Manifest& m, const TableReader& root) {
  using Type = ArgumentType::Kind;
  const auto tables = root.tables("arg");
  for (std::size_t i = 0; i < m.arguments.size(); ++i) {
    const ArgumentSpec& a = m.arguments[i];
    const Type kind = a.type.kind;
    if (a.type.is_float() || kind == Type::structure || kind == Type::tensormap) {
      symbols.unavailable.emplace(a.name, why_no_integer(a, m));
      continue;
    }
    symbols.slots.emplace(a.name, m.slots.argument_slot(static_cast<int>(i)));
    if (kind != Type::pointer) continue;
    symbols.pointers.insert(a.name);
    const TableReader reader(*tables[i], "[[arg]] " + base::quote(a.name), root.file());
    if (auto strides = stride_texts(reader); !strides.empty())
      symbols.strides.emplace(a.name, std::move(strides));
  }
}

}  // namespace

void make_symbols(Draft& draft, const TableReader& root) {
  const Manifest& m = draft.out;
  add_constants(draft.resolve);
  add_parameters(draft.resolve, m);
  draft.resolve.later = &draft.launch;

  draft.launch.below = &draft.resolve;
  add_arguments(draft.launch, m, root);
  for (std::size_t i = 0; i < m.runtime.size(); ++i)
    draft.launch.slots.emplace(m.runtime[i].name, m.slots.runtime_slot(static_cast<int>(i)));
  for (std::size_t i = 0; i < m.exports.size(); ++i)
    draft.launch.slots.emplace(m.exports[i].name, m.slots.export_slot(static_cast<int>(i)));
  draft.launch.slots.emplace("dev.sms", m.slots.sms_slot());
  draft.launch.slots.emplace("dev.smem_optin", m.slots.smem_optin_slot());
  draft.launch.slots.emplace("dev.l2", m.slots.l2_slot());
  for (const TensorMapSpec& map : m.tensor_maps)
    draft.launch.unavailable.emplace(map.name, "it is a tensor map, which is no number");
  for (const RuntimeValueSpec& value : m.run_values)
    draft.launch.unavailable.emplace(value.name, "it is a value of `kiln run`, which a launch does not have");
  draft.launch.unavailable.emplace("occupancy", "it is known only in [launch]");

  draft.geometry.below = &draft.launch;
  draft.geometry.slots.emplace("occupancy", m.slots.occupancy_slot());

  draft.reference.below = &draft.geometry;
  for (const ExportSpec& e : m.exports) {
    draft.reference.unavailable.emplace(e.name,
                                        "it is a constant of the kernel's image, not of the reference's");
  }

  draft.require.below = &draft.launch;
  for (std::size_t i = 0; i < m.arguments.size(); ++i) {
    if (m.arguments[i].type.is_float())
      draft.require.slots.emplace(m.arguments[i].name, m.slots.argument_slot(static_cast<int>(i)));
  }

  draft.run.below = &draft.launch;
  for (std::size_t i = 0; i < m.run_values.size(); ++i)
    draft.run.slots.emplace(m.run_values[i].name, m.slots.run_slot(static_cast<int>(i)));
}

}  // namespace kiln::source
