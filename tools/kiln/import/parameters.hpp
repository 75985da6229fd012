// Template parameters, from their declarations to a manifest's [param.*].
#pragma once

#include "tools/kiln/import/draft.hpp"

namespace kiln::cli {

/// The part of draft_of for template parameters.
void draft_parameters(ImportDraft& draft, const KernelDeclaration& kernel, const CudaSource& source,
                      const Assignments& given);

}  // namespace kiln::cli
