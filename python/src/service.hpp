// Service, Template, Image and Preparation as Python classes over the C ABI.
#pragma once

#include <nanobind/nanobind.h>

#include "adapters.hpp"

namespace kiln::python {

void add_service(nanobind::module_& module);

}  // namespace kiln::python
