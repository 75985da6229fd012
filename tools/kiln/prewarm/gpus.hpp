// Which image of the cache serves which GPU: `kiln prewarm --check --gpus B200,B300`.
#pragma once

#include <string>
#include <vector>

#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/plan/plan.hpp"

namespace kiln::cli {

struct GpuNamed {
  std::string name;  ///< as the user wrote it
  int capability = 0;
};

/// Reads a list such as "B200,hopper,sm_89". A generation becomes one row for each compute capability. Throws
/// Error(invalid_argument) for a name that is not known.
std::vector<GpuNamed> parse_gpus(const std::string& list);

/// Looks, for each task of a plan that was made for the GPUs' own archs, for the image that such a GPU would get.
/// Prints a row for each GPU, and the specialisations that nothing serves. Returns the exit status: 3 when
/// something is missing.
int report_gpus(Context& context, const PrewarmPlan& plan, const std::vector<GpuNamed>& gpus);

}  // namespace kiln::cli
