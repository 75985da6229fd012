// How commands show [limits] and ptxas warnings, and how --strict reports them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compile/key/limits.hpp"
#include "manifest/catalog.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

/// The code of the JSON error object when --strict meets a broken limit.
inline constexpr const char* kLimitsBroken = "limits_broken";

/// Checks the facts against the template's manifest as it is today. Returns nothing when the
/// template is gone.
std::optional<std::vector<compile::BrokenLimit>> broken_today(source::Catalog& catalog,
                                                              const compile::Facts& facts);

Json limits_json(const std::vector<compile::BrokenLimit>& broken);
/// Prints one definition for each ptxas warning and each broken limit.
void print_limits(const compile::Facts& facts, const std::vector<compile::BrokenLimit>& broken,
                  std::size_t indent);
/// Prints the error of `--strict` on stderr, and returns its message.
std::string say_broken(const compile::Facts& facts, const std::vector<compile::BrokenLimit>& broken);

}  // namespace kiln::cli
