#include "instantiate/tune.hpp"

#include <cstdint>
#include <set>

#include "base/quote.hpp"
#include "instantiate/stricter.hpp"
#include "kiln/error.hpp"
#include "manifest/parameter_value.hpp"

namespace kiln::source {
namespace {

/// Texts to try for each free parameter; nullopt stands for its default.
using TextsToTry = std::vector<std::vector<std::optional<std::string>>>;

TextsToTry texts_of(const Manifest& manifest, const std::vector<std::size_t>& free) {
  TextsToTry out;
  std::size_t products = 1;
  for (const std::size_t i : free) {
    const ParameterSpec& spec = manifest.parameters[i];
    auto& texts = out.emplace_back(1);
    for (const std::int64_t value : spec.tune) texts.emplace_back(parameter_text(spec, value));
    products *= texts.size();
    if (products > kMaxCandidates)
      throw Error(Errc::manifest, "template " + base::quote(manifest.name) +
                                      ": the candidates of `tune` multiply to more than " +
                                      std::to_string(kMaxCandidates) +
                                      "; give some of the parameters values");
  }
  return out;
}

}  // namespace

std::vector<std::size_t> free_to_tune(const Manifest& manifest, std::span<const Value> values) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
    const bool given = i < values.size() && values[i].kind != Value::Kind::unset;
    if (!given && !manifest.parameters[i].tune.empty()) out.push_back(i);
  }
  return out;
}

Candidates tune_candidates(const Manifest& base, std::span<const Value> values, base::Arch arch) {
  const Manifest& manifest = variant_for(base, arch);
  Candidates out;
  std::set<std::string> seen;
  const std::vector<std::size_t> free = free_to_tune(manifest, values);
  const auto add = [&](Resolved resolved) {
    if (!seen.insert(resolved.specialization.to_string()).second) return;
    std::vector<Parameter> chosen;
    for (const std::size_t i : free) chosen.push_back(resolved.specialization.parameters[i]);
    out.all.push_back({std::move(resolved), std::move(chosen)});
  };
  add(resolve(base, values, arch));
  const Resolved plain = out.all.front().resolved;
  const TextsToTry texts = texts_of(manifest, free);
  std::size_t products = 1;
  for (const auto& each : texts) products *= each.size();
  std::vector<Value> tried(values.begin(), values.end());
  tried.resize(manifest.parameters.size());
  for (std::size_t n = 1; n < products; ++n) {
    std::string said;
    std::size_t rest = n;
    for (std::size_t at = free.size(); at-- > 0;) {
      const auto& text = texts[at][rest % texts[at].size()];
      rest /= texts[at].size();
      tried[free[at]] = text ? Value(std::string_view(*text)) : Value();
      if (text) said = manifest.parameters[free[at]].name + '=' + *text + (said.empty() ? "" : " ") + said;
    }
    try {
      Resolved resolved = resolve(base, tried, arch);
      std::string why = stricter(manifest, plain, resolved);
      if (why.empty())
        add(std::move(resolved));
      else
        out.refused.emplace_back(said, std::move(why));
    } catch (const Error& error) {
      if (error.code() != Errc::requirement && error.code() != Errc::invalid_value) throw;
      out.refused.emplace_back(said, error.what());
    }
  }
  return out;
}

std::optional<std::vector<Value>> with_choice(const Manifest& manifest, std::span<const Value> values,
                                              std::span<const Parameter> chosen) {
  const std::vector<std::size_t> free = free_to_tune(manifest, values);
  if (free.size() != chosen.size()) return std::nullopt;
  std::vector<Value> out(values.begin(), values.end());
  out.resize(std::max(out.size(), manifest.parameters.size()));
  for (std::size_t at = 0; at < free.size(); ++at) {
    const ParameterSpec& spec = manifest.parameters[free[at]];
    if (chosen[at].name != spec.name || !parameter_value(spec, chosen[at].value)) return std::nullopt;
    out[free[at]] = Value(std::string_view(chosen[at].value));
  }
  return out;
}

}  // namespace kiln::source
