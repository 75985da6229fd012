// Compares the result of a compile with its manifest.
#pragma once

#include <string_view>

#include "compile/key/facts.hpp"
#include "instantiate/instantiate.hpp"
#include "tools/kiln/lint/lines.hpp"
#include "tools/kiln/lint/manifest.hpp"

namespace kiln::cli {

/// `foreign` are headers that the project does not own (foreign_headers).
LintFindings lint_image(const source::Manifest& manifest, const source::Resolved& resolved,
                        const compile::Facts& facts, std::string_view image,
                        const std::vector<std::string>& foreign, const ManifestLines& lines);

}  // namespace kiln::cli
