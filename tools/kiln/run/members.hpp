// The members of a family that the sizes of a command line pick.
#pragma once

#include <optional>
#include <vector>

#include "tools/kiln/run/call_values.hpp"

namespace kiln::cli {

/// The index of the member that serves a size. Nothing where the template has no [family], or where the size does not
/// give the family's argument as an integer.
std::optional<std::size_t> member_for(const source::Manifest& manifest, const GivenArguments& size);

/// The family's parameter with the edge of a member. Its texts are the manifest's.
NamedValue value_of_member(const source::Manifest& manifest, std::size_t member);

/// Sizes of one member. Nothing: sizes that name no member.
struct MemberSizes {
  std::optional<std::size_t> member;
  std::vector<GivenArguments> sizes;
};
/// The sizes by the members that serve them, in the order in which the sizes name them.
std::vector<MemberSizes> by_member(const source::Manifest& manifest,
                                   const std::vector<GivenArguments>& sizes);

}  // namespace kiln::cli
