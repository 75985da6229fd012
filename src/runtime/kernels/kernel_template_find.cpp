// Step 1 of the path for values that are not all numbers of their parameters' kinds. No lock, no allocation,
// no call of system or driver here, either.
#include <string_view>

#include "runtime/kernels/kernel_template.hpp"
#include "source/parameter_value.hpp"

namespace kiln::runtime {

/// False: the slow path must look at it.
bool KernelTemplate::pack(std::size_t parameter, const kiln_value& v, std::int64_t& out) const noexcept {
  if (v.kind == kinds_[parameter]) {
    out = v.integer;
    return v.integer != PackedParameters::kUnset;
  }
  if (v.kind == KILN_VALUE_UNSET) {
    out = PackedParameters::kUnset;
    return true;
  }
  if (v.kind != KILN_VALUE_TEXT || !v.text || v.text_size < 0) return false;
  const auto value = source::parameter_value(origin_->manifest.parameters[parameter],
                                             {v.text, static_cast<std::size_t>(v.text_size)});
  if (!value) return false;
  out = *value;
  return true;
}

bool KernelTemplate::pack_with_care(const char* const* names, const kiln_value* values, std::size_t count,
                                    PackedParameters& out) const noexcept {
  if (count > parameters_ || (count > 0 && !values)) return false;
  std::int64_t numbers[source::kMaxParameters];
  if (names && !pack_named(names, values, count, numbers)) return false;
  for (std::size_t i = 0; !names && i < count; ++i) {
    if (!pack(i, values[i], numbers[i])) return false;
  }
  out.set(numbers, names ? parameters_ : static_cast<std::uint32_t>(count));
  return true;
}

bool KernelTemplate::pack_named(const char* const* names, const kiln_value* values, std::size_t count,
                                std::int64_t* out) const noexcept {
  static_assert(source::kMaxParameters <= 32);
  std::uint32_t taken = 0;
  for (std::uint32_t i = 0; i < parameters_; ++i) out[i] = PackedParameters::kUnset;
  for (std::size_t i = 0; i < count; ++i) {
    const int index = names[i] ? origin_->manifest.parameter_index(names[i]) : -1;
    if (index < 0 || (taken & 1u << index)) return false;
    taken |= 1u << index;
    if (!pack(static_cast<std::size_t>(index), values[i], out[index])) return false;
  }
  return true;
}

const LoadedKernel* KernelTemplate::find_with_care(const ReadyTable& table, const char* const* names,
                                                   const kiln_value* values,
                                                   std::size_t count) const noexcept {
  PackedParameters packed;
  return pack_with_care(names, values, count, packed) ? table.find(packed) : nullptr;
}

}  // namespace kiln::runtime
