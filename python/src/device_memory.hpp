// Memory on the current device that Python objects own.
#pragma once

#include <nanobind/nanobind.h>

namespace kiln::python {

void add_device_memory(nanobind::module_& module);

}  // namespace kiln::python
