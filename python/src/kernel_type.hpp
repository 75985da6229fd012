// What Kernel and Launcher share.
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
  int device;  ///< -1: not known
};

extern PyTypeObject* kernel_type;

/// None, or null with a Python exception. `stream`: as Arguments::stream's.
PyObject* launch(KernelObject* kernel, Arguments& arguments, PyObject* stream) noexcept;

/// The value of stream= among named arguments, which may be nothing else. False with a Python exception.
bool only_stream(PyObject* names, PyObject* const* values, PyObject** stream) noexcept;

void add_launcher_type(nanobind::module_& module);

}  // namespace kiln::python
