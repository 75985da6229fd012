// Template parameters: from what a header says to a manifest's [param.*].
#pragma once

#include "tools/kiln/import/draft.hpp"

namespace kiln::cli {

/// draft_of's two parts.
void draft_parameters(ImportDraft& draft, const KernelDeclaration& kernel, const CudaSource& source,
                      const Assignments& given);

}  // namespace kiln::cli
