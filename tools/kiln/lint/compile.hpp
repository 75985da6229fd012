// One specialisation of a template, through the cache, and what it gives away.
#pragma once

#include "manifest/catalog.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/lint/lines.hpp"
#include "tools/kiln/lint/manifest.hpp"

namespace kiln::cli {

/// automatic: where the first [[prewarm]] row or the defaults say which; forced: the first allowed value of
/// each parameter without a default, too.
enum class LintCompile { off, automatic, forced };

struct CompileLint {
  LintFindings findings;
  bool compiled = false;
};

/// The kernel, and the reference where there is one.
CompileLint lint_compile(Context& context, const std::shared_ptr<const source::Template>& origin,
                         const std::vector<std::string>& foreign, LintCompile mode,
                         const ManifestLines& lines);

}  // namespace kiln::cli
