// The rules of advice.cpp by subject. Private to advice*.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compile/advice.hpp"
#include "compile/diagnostic.hpp"

namespace kiln::compile {

struct AdviceCase {
  const AdviceSubject& subject;
  const std::vector<Diagnostic>& errors;

  bool has_option(std::string_view option) const;
};

/// What to do about one error, or nothing. A rule gives at most one sentence for a log: that of the first
/// error it knows.
using AdviceRule = std::optional<std::string> (*)(const Diagnostic&, const AdviceCase&);

/// Missing headers, and names whose header is not included.
std::span<const AdviceRule> name_rules();
/// Host code, launches, exceptions, ...: what device code does not have.
std::span<const AdviceRule> language_rules();
/// instantiate and [export].
std::span<const AdviceRule> expression_rules();
/// Errors of ptxas.
std::span<const AdviceRule> image_rules();

/// "'run' (line 3 of k.cu)"; without a place "'run'".
std::string named(std::string_view what, const Diagnostic& error);
/// What stands between `before` and `after` in `text`; nothing when it does not fit.
std::optional<std::string_view> between(std::string_view text, std::string_view before,
                                        std::string_view after);
/// The X of `identifier "X" is undefined`.
std::optional<std::string_view> undefined_name(const Diagnostic& error);
/// A name of the CUDA runtime's or driver's host side, or of host output.
bool is_host_call(std::string_view name);

inline bool holds(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace kiln::compile
