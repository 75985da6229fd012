// Compiles one specialisation of a template through the cache, and reports problems in it.
#pragma once

#include "manifest/catalog.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/lint/lines.hpp"
#include "tools/kiln/lint/manifest.hpp"

namespace kiln::cli {

/// automatic: compiles when the first [[prewarm]] row or the defaults give all values. forced: also takes the
/// first allowed value of each parameter without a default, and all combinations of the rows of a claim (lint/claim.hpp).
enum class LintCompile { off, automatic, forced };

struct CompileLint {
  LintFindings findings;
  bool compiled = false;
};

/// Compiles the kernel, and the reference when the template has one.
CompileLint lint_compile(Context& context, const std::shared_ptr<const source::Template>& origin,
                         const std::vector<std::string>& foreign, LintCompile mode,
                         const ManifestLines& lines);

}  // namespace kiln::cli
