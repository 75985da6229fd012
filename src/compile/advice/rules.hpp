// What the rules of advice have in common: each looks at one error of a log. Private to the folder.
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

/// What to do about one error, or nothing. A rule gives at most one sentence for a log: that of the first
/// error it knows.
using AdviceRule = std::optional<std::string> (*)(const Diagnostic&, const AdviceCase&);

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
