#include "manifest/manifest.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace kiln::source {
namespace {

/// Index of the element of that name, or -1.
template <class Range>
int index_of(const Range& items, std::string_view name) noexcept {
  const auto found =
      std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.name == name; });
  return found == items.end() ? -1 : static_cast<int>(found - items.begin());
}

}  // namespace

std::uint32_t ArgumentType::size() const noexcept {
  switch (kind) {
    case Kind::i32:
    case Kind::u32:
    case Kind::f32:
      return 4;
    case Kind::structure:
      return struct_bytes;
    case Kind::tensormap:
      return kTensorMapBytes;
    default:
      return 8;
  }
}

std::string ArgumentType::to_string(const std::vector<ParameterSpec>& parameters) const {
  switch (kind) {
    case Kind::i32:
      return "i32";
    case Kind::i64:
      return "i64";
    case Kind::u32:
      return "u32";
    case Kind::u64:
      return handle == Handle::texture ? "texture" : handle == Handle::surface ? "surface" : "u64";
    case Kind::f32:
      return "f32";
    case Kind::f64:
      return "f64";
    case Kind::structure:
      return struct_bytes == 0 ? "struct" : "struct<" + std::to_string(struct_bytes) + '>';
    case Kind::tensormap:
      return "tensormap";
    case Kind::pointer:
      break;
  }
  if (dtype_parameter >= 0) return "ptr<" + parameters[static_cast<std::size_t>(dtype_parameter)].name + '>';
  return "ptr<" + (dtype ? std::string(kiln::to_string(*dtype)) : std::string("void")) + '>';
}

std::string_view to_string(ParameterKind kind) noexcept {
  constexpr std::string_view names[] = {"dtype", "int", "bool", "enum", "type"};
  return names[static_cast<std::size_t>(kind)];
}

std::string default_text(const ParameterSpec& p) {
  const std::string& text = p.default_value.text();
  if (p.kind == ParameterKind::integer || text.find_first_not_of("-0123456789") != std::string::npos)
    return text;
  if (p.kind == ParameterKind::boolean) return text == "0" ? "false" : "true";
  for (const auto& choice : p.choices) {
    if (std::to_string(choice.value) == text) return choice.name;
  }
  return text;
}

int parameter_index(const Manifest& manifest, std::string_view wanted) noexcept {
  return index_of(manifest.parameters, wanted);
}

int argument_index(const Manifest& manifest, std::string_view wanted) noexcept {
  return index_of(manifest.arguments, wanted);
}

int slot_index(const Manifest& manifest, std::string_view wanted) noexcept {
  const SlotLayout& slots = manifest.slots;
  if (const int i = parameter_index(manifest, wanted); i >= 0) return i;
  for (std::size_t i = 0; i < manifest.derives.size(); ++i) {
    if (manifest.derives[i].first == wanted) return slots.derive_slot(static_cast<int>(i));
  }
  if (const int i = argument_index(manifest, wanted); i >= 0) return slots.argument_slot(i);
  if (const int i = index_of(manifest.runtime, wanted); i >= 0) return slots.runtime_slot(i);
  if (const int i = index_of(manifest.run_values, wanted); i >= 0) return slots.run_slot(i);
  if (const int i = index_of(manifest.exports, wanted); i >= 0) return slots.export_slot(i);
  constexpr std::string_view facts[] = {"arch",    "arch.smem_sm",   "arch.smem_block", "arch.regs",
                                        "dev.sms", "dev.smem_optin", "dev.l2",          "occupancy"};
  const auto found = std::find(std::begin(facts), std::end(facts), wanted);
  return found == std::end(facts) ? -1 : slots.arch_slot() + static_cast<int>(found - std::begin(facts));
}

namespace {

/// True when what a manifest says for `allowed` also holds for `arch`. Source for a family or base target of 10.0 or later
/// also compiles for the targets of the same GPUs that have more instructions.
bool allows(base::Arch allowed, base::Arch arch) noexcept {
  if (allowed == arch) return true;
  return allowed.number >= 100 && allowed.features != base::Features::exact &&
         allowed.features <= arch.features && allowed.runs_on(arch.number);
}

}  // namespace

const Manifest& variant_for(const Manifest& manifest, base::Arch arch) noexcept {
  const Manifest* best = nullptr;
  base::Arch best_arch;
  const auto rank = [](base::Arch a) { return std::pair(a.features, a.number); };
  for (const auto& [of, variant] : manifest.variants) {
    if (of == arch) return *variant;
    if (allows(of, arch) && (!best || rank(best_arch) < rank(of))) best = variant.get(), best_arch = of;
  }
  return best ? *best : manifest;
}

const Manifest* entry_named(const Manifest& manifest, std::string_view wanted) noexcept {
  if (wanted == manifest.entry) return &manifest;
  for (const auto& other : manifest.entries) {
    if (other->entry == wanted) return other.get();
  }
  return nullptr;
}

std::vector<std::string> parameter_names(const Manifest& manifest) {
  std::vector<std::string> out;
  for (const ParameterSpec& p : manifest.parameters) out.push_back(p.name);
  return out;
}

const std::string& passed_name(const Manifest& manifest, PassedArgument passed) noexcept {
  switch (passed.from) {
    case PassedArgument::From::tensor_map:
      return manifest.tensor_maps[passed.index].name;
    case PassedArgument::From::constant:
      return manifest.constants[passed.index].text;
    default:
      return manifest.arguments[passed.index].name;
  }
}

std::uint32_t passed_size(const Manifest& manifest, PassedArgument passed) noexcept {
  ArgumentType constant;
  switch (passed.from) {
    case PassedArgument::From::tensor_map:
      return kTensorMapBytes;
    case PassedArgument::From::constant:
      constant.kind = manifest.constants[passed.index].kind;
      return constant.size();
    default:
      return manifest.arguments[passed.index].type.size();
  }
}

bool is_the_call(const std::vector<PassedArgument>& passed, const Manifest& manifest) noexcept {
  if (passed.size() != manifest.arguments.size()) return false;
  for (std::size_t i = 0; i < passed.size(); ++i)
    if (passed[i].from != PassedArgument::From::call || passed[i].index != i) return false;
  return true;
}

std::string passed_text(const Manifest& manifest) {
  if (is_the_call(manifest.passed, manifest)) return {};
  std::string out;
  for (const PassedArgument& passed : manifest.passed)
    out += (out.empty() ? "" : ", ") + passed_name(manifest, passed);
  return out;
}

std::string element_text(const TensorMapSpec& map) {
  constexpr std::string_view changed[] = {"f32", "f32_flushed", "tf32", "tf32_flushed"};
  const auto ordinal = map.element.constant_value();
  if (map.float32 != TensorMapSpec::Float32::as_it_is)
    return std::string(changed[static_cast<std::size_t>(map.float32)]);
  return ordinal ? std::string(kiln::to_string(static_cast<Dtype>(*ordinal))) : map.element.text();
}

std::string summary(const TensorMapSpec& map, const Manifest& manifest) {
  const auto list = [](const char* what, const std::vector<Expression>& of) {
    std::string out;
    for (const Expression& one : of) out += (out.empty() ? "" : ", ") + one.text();
    return out.empty() ? out : std::string(", ") + what + " [" + out + ']';
  };
  const auto bytes = [](const char* what, const Expression& of) {
    return of.constant_value() == 0 ? std::string() : std::string(", ") + what + ' ' + of.text();
  };
  return manifest.arguments[static_cast<std::size_t>(map.of)].name + " as " + element_text(map) +
         list("dims", map.dims) + list(map.strides_in_bytes ? "byte strides" : "strides", map.strides) +
         list("box", map.box) + list("element strides", map.element_strides) + bytes("swizzle", map.swizzle) +
         bytes("l2", map.l2) + bytes("interleave", map.interleave) + (map.fill_nan ? ", fill nan" : "") +
         (map.in < 0 ? "" : ", in " + manifest.arguments[static_cast<std::size_t>(map.in)].name);
}

std::string summary(const FamilySpec& family, const Manifest& manifest) {
  std::string out = manifest.arguments[static_cast<std::size_t>(family.by)].name + " picks " +
                    manifest.parameters[static_cast<std::size_t>(family.parameter)].name + ':';
  for (const std::int64_t edge : family.edges.all())
    out += (out.back() == ':' ? " " : ", ") + std::to_string(edge);
  return out + "; " + std::to_string(family.edges.all().back()) + " also for all above";
}

bool supports(const Manifest& manifest, base::Arch arch) noexcept {
  if (!manifest.arch_only.empty())
    return std::any_of(manifest.arch_only.begin(), manifest.arch_only.end(),
                       [&](base::Arch allowed) { return allows(allowed, arch); });
  const base::Features all = base::Arch(arch.number).features;
  return !(manifest.arch_min && arch.number < manifest.arch_min->number) &&
         std::max(arch.features, base::Features::base) >= std::min(all, manifest.features);
}

}  // namespace kiln::source
