// Values of one parameter: the allowed values and their texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// The text in a plan that stands for every value of a parameter.
inline constexpr std::string_view kEveryValue = "*";
/// The canonical texts of all values. Empty where the parameter has a range, or takes any integer.
std::vector<std::string> every_value(const ParameterSpec& spec);

/// "f32, f16, bf16", "1 to 65536", "true, false".
std::string allowed_values(const ParameterSpec& spec);

}  // namespace kiln::source
