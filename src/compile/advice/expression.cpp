#include "compile/advice/expression.hpp"

#include <algorithm>
#include <array>

namespace kiln::compile {
namespace {

constexpr std::string_view kExport = "[export] ", kNameMap = "__nv_name_map";

std::optional<std::string> exported(const Diagnostic& error, const AdviceCase&) {
  if (!error.file.starts_with(kExport)) return std::nullopt;
  return "the export '" + std::string(error.file.substr(kExport.size())) +
         "' must be an integer constant expression of this source (a sizeof, a constexpr variable, an "
         "enumerator), with every name spelled from the global namespace";
}

std::string asked_for(const Diagnostic& error, const AdviceCase& in) {
  constexpr std::string_view pragma = "#pragma nv_mangled_name ";
  if (const auto at = error.source.find(pragma); at != std::string_view::npos)
    return std::string(error.source.substr(at + pragma.size()));
  return std::string(in.subject.name_expression);
}

std::optional<std::string> name_expression(const Diagnostic& error, const AdviceCase& in) {
  if (!error.file.starts_with(kNameMap)) return std::nullopt;
  // A name expression also fails when the source itself has errors.
  if (std::any_of(in.errors.begin(), in.errors.end(),
                  [](const Diagnostic& other) { return !other.file.starts_with(kNameMap); }))
    return std::nullopt;
  const std::string asked = asked_for(error, in);
  if (asked.starts_with('&'))
    return "the symbol '" + asked.substr(1) +
           "' of a [[global]] is no variable that the source declares: write its full name, with all of its "
           "namespaces";
  const std::string text = "instantiate gives '" + asked + "', ";
  if (holds(error.message, "cannot determine which instance of overloaded function"))
    return text +
           "which fits several overloads: cast it to the type of the overload that you want, as in "
           "\"(void(*)(float*))ns::kernel<{N}>\"";
  if (const auto function =
          between(error.message, "cannot determine which instance of function template \"", "\""))
    return text + "which does not fit the template '" + std::string(*function) +
           "': number, order and kind (type or value) of the arguments must be those of its declaration";
  if (const auto name = undefined_name(error))
    return text + "and the source declares no '" + std::string(*name) +
           "': write its full name, with all of its namespaces (ns::" + std::string(*name) + ')';
  if (holds(error.message, "name followed by \"::\""))
    return text + "and one of its namespaces or classes does not exist: compare its spelling with the source";
  if (holds(error.message, "has no member \""))
    return text + "whose namespace or class has no '" +
           std::string(between(error.message, "has no member \"", "\"").value_or("")) +
           "': compare its spelling with the source";
  if (holds(error.message, "operand types are incompatible"))
    return text + "and the function is no template: leave the angle brackets out";
  if (holds(error.message, "non-__global__ function"))
    return text +
           "which is no __global__ function: name the kernel itself, not a function that it calls or "
           "that launches it";
  return std::nullopt;
}

}  // namespace

std::span<const AdviceRule> expression_rules() {
  static constexpr std::array<AdviceRule, 2> rules{exported, name_expression};
  return rules;
}

}  // namespace kiln::compile
