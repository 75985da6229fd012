// kiln.Kernel: a callable whose call is one vectorcall, from the Python arguments to the driver.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "holder.hpp"

namespace kiln::python {

/// `device`: the ordinal that it was loaded on, which arrays must be on, too; -1: not known.
nanobind::object make_kernel(const kiln_kernel* kernel, std::shared_ptr<Holder> holder, int device);

/// Adds the types Kernel and Launcher to the module.
void add_kernel_types(nanobind::module_& module);

}  // namespace kiln::python
