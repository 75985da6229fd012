#include "tools/kiln/run/members.hpp"

#include <algorithm>
#include <charconv>

namespace kiln::cli {

std::optional<std::size_t> member_for(const source::Manifest& manifest, const GivenArguments& size) {
  if (!manifest.family) return std::nullopt;
  const auto given = size.find(manifest.arguments[static_cast<std::size_t>(manifest.family->by)].name);
  if (given == size.end()) return std::nullopt;
  const std::string& text = given->second;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return manifest.family->edges.of(value);
}

NamedValue value_of_member(const source::Manifest& manifest, std::size_t member) {
  const source::ParameterSpec& parameter =
      manifest.parameters[static_cast<std::size_t>(manifest.family->parameter)];
  return {parameter.name, Value(std::string_view(parameter.choices[member].name))};
}

std::vector<MemberSizes> by_member(const source::Manifest& manifest,
                                   const std::vector<GivenArguments>& sizes) {
  std::vector<MemberSizes> out;
  for (const GivenArguments& size : sizes) {
    const auto member = member_for(manifest, size);
    auto found =
        std::find_if(out.begin(), out.end(), [&](const MemberSizes& m) { return m.member == member; });
    if (found == out.end()) found = out.insert(out.end(), {member, {}});
    found->sizes.push_back(size);
  }
  return out;
}

}  // namespace kiln::cli
