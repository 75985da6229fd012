// Plans of attention launches: kiln_kernel_attention_sizes and kiln_kernel_attention_plan as functions on a
// Kernel.
#pragma once

#include <nanobind/nanobind.h>

namespace kiln::python {

void add_attention(nanobind::module_& module);

}  // namespace kiln::python
