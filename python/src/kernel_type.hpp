// The type of kiln.Kernel, which Kernel and Launcher share.
#pragma once

#include <nanobind/nanobind.h>
#include <structmember.h>

#include <memory>

#include "adapters.hpp"
#include "holder.hpp"

namespace kiln::python {

struct KernelObject {
  PyObject_HEAD vectorcallfunc call;
  const kiln_kernel* kernel;
  std::shared_ptr<Holder> holder;
  int device;  ///< the ordinal that the kernel was loaded on; negative: not known
};

extern PyTypeObject* kernel_type;

/// Launches the kernel. Returns None, or null with a Python exception. `stream` is as in Arguments::stream.
PyObject* launch(KernelObject* kernel, Arguments& arguments, PyObject* stream) noexcept;

/// Finds the value of stream= among named arguments; other names are errors. False with a Python exception.
bool only_stream(PyObject* names, PyObject* const* values, PyObject** stream) noexcept;

void add_launcher_type(nanobind::module_& module);

}  // namespace kiln::python
