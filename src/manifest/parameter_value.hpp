// Values of one parameter: the allowed values and their texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "manifest/manifest.hpp"

namespace kiln::source {

/// The value that `text` names ("bf16", "4096", "true", "silu"), or nothing when it is not allowed.
std::optional<std::int64_t> parameter_value(const ParameterSpec& spec, std::string_view text);
bool parameter_allows(const ParameterSpec& spec, std::int64_t value);

/// Texts of an allowed value: canonical, as in Specialization; and C++, as in the name expression.
std::string parameter_text(const ParameterSpec& spec, std::int64_t value);
std::string parameter_cpp(const ParameterSpec& spec, std::int64_t value);
/// `value` in decimal, as a C++ expression.
std::string integer_cpp(std::int64_t value);

/// "f32, f16, bf16", "1 to 65536", "true, false".
std::string allowed_values(const ParameterSpec& spec);

}  // namespace kiln::source
