// Compiles the [[prewarm]] rows of a template for the targets that its [template] arch allows.
#pragma once

#include "manifest/catalog.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/lint/finding.hpp"

namespace kiln::cli {

/// Which combinations of a row's values are compiled. each_value: as few as have every value of every list once.
enum class RowValues { each_value, all };

/// The targets that stand for all images which a claim of fewer features than "exact" allows, in ascending order. Empty when
/// the template claims "exact".
/// - [template] arch with `min`: the oldest target of each major version among the GPUs that `--arch` knows, from
///   `min` on. Later targets of the same major version have the same instructions and more.
/// - `only`: the archs of the list that are not exact.
std::vector<base::Arch> claimed_targets(const source::Manifest& manifest);

/// Reports each row that does not compile for one of the claimed targets, or for an arch that the row itself names. Compiles
/// in as many threads as there are workers. Targets that the compiler does not know are reported as notes.
LintFindings lint_claim(Context& context, const std::shared_ptr<const source::Template>& origin,
                        RowValues which);

}  // namespace kiln::cli
