#include "manifest/parameter_value.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

namespace kiln::source {
namespace {

const ParameterSpec::Choice* choice_of(const ParameterSpec& spec, std::int64_t value) {
  const auto found =
      std::find_if(spec.choices.begin(), spec.choices.end(), [&](const auto& c) { return c.value == value; });
  return found == spec.choices.end() ? nullptr : &*found;
}

}  // namespace

bool parameter_allows(const ParameterSpec& spec, std::int64_t value) {
  if (value == std::numeric_limits<std::int64_t>::min()) return false;  // stands for "not given"
  if (spec.kind == ParameterKind::boolean) return value == 0 || value == 1;
  if (!spec.choices.empty()) return choice_of(spec, value) != nullptr;
  return !spec.range || (value >= spec.range->first && value <= spec.range->second);
}

std::optional<std::int64_t> parameter_value(const ParameterSpec& spec, std::string_view text) {
  switch (spec.kind) {
    case ParameterKind::boolean:
      if (text == "true" || text == "1") return 1;
      if (text == "false" || text == "0") return 0;
      return std::nullopt;
    case ParameterKind::integer: {
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc{} || end != text.data() + text.size() || !parameter_allows(spec, value))
        return std::nullopt;
      return value;
    }
    default:
      for (const auto& choice : spec.choices) {
        if (choice.name == text) return choice.value;
      }
      return std::nullopt;
  }
}

std::string parameter_text(const ParameterSpec& spec, std::int64_t value) {
  if (spec.kind == ParameterKind::boolean) return value ? "true" : "false";
  if (const auto* choice = choice_of(spec, value)) return choice->name;
  return std::to_string(value);
}

std::string parameter_cpp(const ParameterSpec& spec, std::int64_t value) {
  if (spec.kind == ParameterKind::boolean) return value ? "true" : "false";
  if (const auto* choice = choice_of(spec, value)) return choice->cpp;
  return integer_cpp(value);
}

std::string integer_cpp(std::int64_t value) {
  // The least integer has no literal of its own.
  return value == std::numeric_limits<std::int64_t>::min() ? "(-9223372036854775807-1)"
                                                           : std::to_string(value);
}

std::vector<std::string> every_value(const ParameterSpec& spec) {
  if (spec.kind == ParameterKind::boolean) return {"false", "true"};
  std::vector<std::string> out;
  for (const auto& choice : spec.choices) out.push_back(choice.name);
  return out;
}

std::string allowed_values(const ParameterSpec& spec) {
  if (spec.kind == ParameterKind::boolean) return "true, false";
  if (spec.range) return std::to_string(spec.range->first) + " to " + std::to_string(spec.range->second);
  std::string out;
  for (const auto& choice : spec.choices) out += (out.empty() ? "" : ", ") + choice.name;
  return out.empty() ? "any integer" : out;
}

}  // namespace kiln::source
