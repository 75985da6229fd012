// For benches: enters many ready kernels without as many compiles.
#pragma once

#include "runtime/kernels/kernel_template.hpp"

namespace kiln::runtime {

struct KernelTemplateProbe {
  static void enter(KernelTemplate& t, const PackedParameters& parameters, const LoadedKernel* kernel) {
    t.tables_.ready.insert(parameters, kernel);
  }
};

}  // namespace kiln::runtime
