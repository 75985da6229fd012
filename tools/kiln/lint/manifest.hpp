// Problems that a manifest alone shows: unused names, shapes in macros, and missing parts.
#pragma once

#include "manifest/manifest.hpp"
#include "manifest/toml/tree.hpp"
#include "tools/kiln/lint/finding.hpp"
#include "tools/kiln/lint/lines.hpp"

namespace kiln::cli {

LintFindings lint_manifest(const source::Manifest& manifest, const ManifestLines& lines);

}  // namespace kiln::cli
