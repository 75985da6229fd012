#include "runtime/kernels/packing.hpp"

#include <string_view>

#include "manifest/parameter_value.hpp"

namespace kiln::runtime {
namespace {

std::int64_t number_kind(source::ParameterKind kind) noexcept {
  switch (kind) {
    case source::ParameterKind::integer:
      return KILN_VALUE_INTEGER;
    case source::ParameterKind::boolean:
      return KILN_VALUE_BOOLEAN;
    case source::ParameterKind::dtype:
      return KILN_VALUE_DTYPE;
    default:
      return INT64_MAX;  // no value has this kind: an enum's values are named
  }
}

}  // namespace

ParameterPacking::ParameterPacking(const source::Manifest& manifest)
    : manifest_(manifest), parameters_(static_cast<std::uint32_t>(manifest.parameters.size())) {
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i)
    kinds_[i] = number_kind(manifest.parameters[i].kind);
}

bool ParameterPacking::pack_one(std::size_t parameter, const kiln_value& v,
                                std::int64_t& out) const noexcept {
  if (v.kind == kinds_[parameter]) {
    out = v.integer;
    return v.integer != PackedParameters::kUnset;
  }
  if (v.kind == KILN_VALUE_UNSET) {
    out = PackedParameters::kUnset;
    return true;
  }
  if (v.kind != KILN_VALUE_TEXT || !v.text || v.text_size < 0) return false;
  const auto value = source::parameter_value(manifest_.parameters[parameter],
                                             {v.text, static_cast<std::size_t>(v.text_size)});
  if (!value) return false;
  out = *value;
  return true;
}

bool ParameterPacking::pack(const char* const* names, const kiln_value* values, std::size_t count,
                            PackedParameters& out) const noexcept {
  if (count > parameters_ || (count > 0 && !values)) return false;
  std::int64_t numbers[source::kMaxParameters];
  if (names && !pack_named(names, values, count, numbers)) return false;
  for (std::size_t i = 0; !names && i < count; ++i) {
    if (!pack_one(i, values[i], numbers[i])) return false;
  }
  out.set(numbers, names ? parameters_ : static_cast<std::uint32_t>(count));
  return true;
}

bool ParameterPacking::pack_named(const char* const* names, const kiln_value* values, std::size_t count,
                                  std::int64_t* out) const noexcept {
  static_assert(source::kMaxParameters <= 32);
  std::uint32_t taken = 0;
  for (std::uint32_t i = 0; i < parameters_; ++i) out[i] = PackedParameters::kUnset;
  for (std::size_t i = 0; i < count; ++i) {
    const int index = names[i] ? parameter_index(manifest_, names[i]) : -1;
    if (index < 0 || (taken & 1u << index)) return false;
    taken |= 1u << index;
    if (!pack_one(static_cast<std::size_t>(index), values[i], out[index])) return false;
  }
  return true;
}

const LoadedKernel* ParameterPacking::find(const ReadyTable& table, const char* const* names,
                                           const kiln_value* values, std::size_t count) const noexcept {
  PackedParameters packed;
  return pack(names, values, count, packed) ? table.find(packed) : nullptr;
}

}  // namespace kiln::runtime
