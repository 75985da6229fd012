// Common parts of the advice rules: each rule looks at one error of a log. Private to the folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compile/advice/advice.hpp"
#include "compile/advice/diagnostic.hpp"

namespace kiln::compile {

struct AdviceCase {
  const AdviceSubject& subject;
  const std::vector<Diagnostic>& errors;

  bool has_option(std::string_view option) const;
};

/// A sentence that says what to do about one error, or nothing. A log gets at most one sentence from a rule,
/// for the first error that the rule knows.
using AdviceRule = std::optional<std::string> (*)(const Diagnostic&, const AdviceCase&);

/// "'run' (line 3 of k.cu)". Without a place: "'run'".
std::string named(std::string_view what, const Diagnostic& error);
/// The text between `before` and `after` in `text`; nothing when either is missing.
std::optional<std::string_view> between(std::string_view text, std::string_view before,
                                        std::string_view after);
/// The X of `identifier "X" is undefined`.
std::optional<std::string_view> undefined_name(const Diagnostic& error);
/// True for a name of the CUDA runtime's or driver's host side, or of host output.
bool is_host_call(std::string_view name);

inline bool holds(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace kiln::compile
