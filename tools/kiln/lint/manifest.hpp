// What a manifest alone gives away: names that nothing uses, shapes in macros, and what is left out.
#pragma once

#include "manifest/manifest.hpp"
#include "manifest/toml/tree.hpp"
#include "tools/kiln/lint/finding.hpp"
#include "tools/kiln/lint/lines.hpp"

namespace kiln::cli {

LintFindings lint_manifest(const source::Manifest& manifest, const ManifestLines& lines);

}  // namespace kiln::cli
