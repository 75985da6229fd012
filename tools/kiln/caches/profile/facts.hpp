// The facts that the files of a directory depend on, as the compatibility of a blob.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/kiln/caches/profile/profile.hpp"

namespace kiln::cli {

class Context;

/// Names and values, in a fixed order: "gpu" "sm_90a". A value has no line end.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// The facts of a profile's directory here and now. `python` names the interpreter, as PythonPackages has it.
Facts facts_of(const Profile& profile, const std::string& root, const std::string& python, Context& context);
/// The facts of a directory without a profile, of which nothing is known: the machine, its GPUs and driver.
Facts facts_of_any(Context& context);

/// A compatibility: "kiln-dir 1", then a line "NAME VALUE" for each fact.
std::string text_of(const Facts& facts);
/// The facts of such a text; none when it is another text.
Facts facts_in(std::string_view compatibility);

/// A fact that two lists have with different values, or that one of them lacks (empty).
struct FactDifference {
  std::string fact, recorded, now;
};
std::vector<FactDifference> differences(const Facts& recorded, const Facts& now);

}  // namespace kiln::cli
