// [limits] and what ptxas warns of, as commands show them; what --strict makes of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compile/key/limits.hpp"
#include "manifest/catalog.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

/// The code of the error object of a broken limit under --strict.
inline constexpr const char* kLimitsBroken = "limits_broken";

/// By the template's manifest as it is today; nothing when the template is gone.
std::optional<std::vector<compile::BrokenLimit>> broken_today(source::Catalog& catalog,
                                                              const compile::Facts& facts);

Json limits_json(const std::vector<compile::BrokenLimit>& broken);
/// Warnings of ptxas and broken limits, a definition each.
void print_limits(const compile::Facts& facts, const std::vector<compile::BrokenLimit>& broken,
                  std::size_t indent);
/// What `--strict` says on stderr. Returns the message.
std::string say_broken(const compile::Facts& facts, const std::vector<compile::BrokenLimit>& broken);

}  // namespace kiln::cli
