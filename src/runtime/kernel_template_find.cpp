// Step 1 of the path: the hot one. No lock, no allocation, no call of system or driver.
#include <string_view>

#include "runtime/kernel_template.hpp"

namespace kiln::runtime {

using source::ParameterKind;
using source::ParameterSpec;

/// What is not a number of the parameter's own kind; false: the slow path must look at it.
bool KernelTemplate::pack(std::size_t parameter, const kiln_value& v, std::int64_t& out) const noexcept {
  if (v.kind == KILN_VALUE_UNSET) {
    out = PackedParameters::kUnset;
    return true;
  }
  if (v.kind != KILN_VALUE_TEXT || !v.text || v.text_size < 0) return false;
  const std::string_view text(v.text, static_cast<std::size_t>(v.text_size));
  for (const ParameterSpec::Choice& choice : origin_->manifest.parameters[parameter].choices) {
    if (choice.name != text) continue;
    out = choice.value;
    return true;
  }
  return false;
}

bool KernelTemplate::pack(const char* const* names, const kiln_value* values, std::size_t count,
                          PackedParameters& out) const noexcept {
  const auto& parameters = origin_->manifest.parameters;
  if (count > parameters.size() || (count > 0 && !values)) return false;
  if (names) {
    out.count = static_cast<std::uint32_t>(parameters.size());
    for (std::uint32_t i = 0; i < out.count; ++i) out.values[i] = PackedParameters::kUnset;
  } else {
    out.count = static_cast<std::uint32_t>(count);
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t at = i;
    if (names) {
      const int index = names[i] ? origin_->manifest.parameter_index(names[i]) : -1;
      if (index < 0 || out.values[index] != PackedParameters::kUnset) return false;
      at = static_cast<std::size_t>(index);
    }
    if (values[i].kind == kinds_[at]) [[likely]] {
      out.values[at] = values[i].integer;
      if (values[i].integer == PackedParameters::kUnset) return false;
    } else if (!pack(at, values[i], out.values[at])) {
      return false;
    }
  }
  out.trim();
  return true;
}

const LoadedKernel* KernelTemplate::find(const char* const* names, const kiln_value* values,
                                         std::size_t count) const noexcept {
  PackedParameters packed;
  return pack(names, values, count, packed) ? ready_.find(packed) : nullptr;
}

const LoadedKernel* KernelTemplate::find_chosen(const char* const* names, const kiln_value* values,
                                                std::size_t count) const noexcept {
  PackedParameters packed;
  return pack(names, values, count, packed) ? chosen_.find(packed) : nullptr;
}

}  // namespace kiln::runtime
