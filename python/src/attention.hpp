// Plans of attention launches: the C ABI's kiln_kernel_attention_sizes and _plan as functions of a Kernel.
#pragma once

#include <nanobind/nanobind.h>

namespace kiln::python {

void add_attention(nanobind::module_& module);

}  // namespace kiln::python
