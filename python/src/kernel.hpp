// kiln.Kernel: a callable that takes one vectorcall from the Python arguments to the driver.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "holder.hpp"

namespace kiln::python {

/// `device` is the ordinal that the kernel was loaded on; arrays must lie on it. Negative: not known.
nanobind::object make_kernel(const kiln_kernel* kernel, std::shared_ptr<Holder> holder, int device);

nanobind::object make_family(const kiln_family* family, std::shared_ptr<Holder> holder, int device);

/// Adds the types Kernel, Family and Launcher to the module.
void add_kernel_types(nanobind::module_& module);

}  // namespace kiln::python
