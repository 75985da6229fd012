// A kernel's arguments, as far as its declaration tells them.
#pragma once

#include "tools/kiln/import/draft.hpp"

namespace kiln::cli {

void draft_arguments(ImportDraft& draft, const KernelDeclaration& kernel, const CudaSource& source);

}  // namespace kiln::cli
