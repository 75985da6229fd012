#include "compile/advice/advice.hpp"

#include <algorithm>
#include <csignal>

#include "compile/advice/expression.hpp"
#include "compile/advice/image.hpp"
#include "compile/advice/language.hpp"
#include "compile/advice/names.hpp"

namespace kiln::compile {
namespace {
constexpr std::size_t kMostHints = 3;
}

bool AdviceCase::has_option(std::string_view option) const {
  return std::find(subject.options.begin(), subject.options.end(), option) != subject.options.end();
}

std::string named(std::string_view what, const Diagnostic& error) {
  const std::string location = error.location();
  std::string out = '\'' + std::string(what) + '\'';
  return location.empty() ? out : out + " (" + location + ')';
}

std::optional<std::string_view> between(std::string_view text, std::string_view before,
                                        std::string_view after) {
  const auto begin = text.find(before);
  if (begin == std::string_view::npos) return std::nullopt;
  const auto from = begin + before.size(), end = text.find(after, from);
  if (end == std::string_view::npos) return std::nullopt;
  return text.substr(from, end - from);
}

std::optional<std::string_view> undefined_name(const Diagnostic& error) {
  return between(error.message, "identifier \"", "\" is undefined");
}

std::vector<std::string> advice_for(std::string_view log, const AdviceSubject& subject) {
  const std::vector<Diagnostic> errors = errors_of(log);
  const AdviceCase in{subject, errors};
  std::vector<std::string> out;
  for (const auto rules : {expression_rules(), name_rules(), language_rules(), image_rules()}) {
    for (const AdviceRule rule : rules) {
      for (const Diagnostic& error : errors) {
        auto hint = rule(error, in);
        if (!hint) continue;
        if (std::find(out.begin(), out.end(), *hint) == out.end()) out.push_back(std::move(*hint));
        break;
      }
      if (out.size() == kMostHints) return out;
    }
  }
  return out;
}

std::string advice_for_crash(int signal, const AdviceSubject& subject) {
  if (signal != SIGSEGV) return {};
  return "the crash is a fault of NVRTC, but the source triggers it. Known triggers in NVRTC 13.0: a "
         "__global__ template with a parameter of a type that is not declared (check every type in the "
         "declaration of '" +
         std::string(subject.name_expression) +
         "'; preinclude in [compile] adds a header), and wgmma with a constant descriptor";
}

}  // namespace kiln::compile
