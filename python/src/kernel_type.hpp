// The objects of kiln.Kernel and kiln.Family, which both types and Launcher share.
#pragma once

#include <nanobind/nanobind.h>
#include <structmember.h>

#include <memory>

#include "adapters.hpp"
#include "holder.hpp"

namespace kiln::python {

struct KernelObject {
  PyObject_HEAD vectorcallfunc call;
  const kiln_kernel* kernel;  ///< null: a Family
  const kiln_family* family;  ///< null: a Kernel
  std::shared_ptr<Holder> holder;
  int device;  ///< the ordinal that the kernel was loaded on; negative: not known
};

extern PyTypeObject* kernel_type;

/// A vectorcall of a Kernel or Family: launches with these Python arguments.
PyObject* call_kernel(PyObject* self, PyObject* const* arguments, std::size_t flagged,
                      PyObject* names) noexcept;
/// A new Kernel or Family, of `type`. One of kernel and family is null.
nanobind::object new_object(PyTypeObject* type, const kiln_kernel* kernel, const kiln_family* family,
                            std::shared_ptr<Holder> holder, int device);
/// Frees a Kernel or Family.
void deallocate_kernel(PyObject* self);

/// Launches the kernel, or the family's member. Returns None, or null with a Python exception. `stream` is as in Arguments::stream.
PyObject* launch(KernelObject* kernel, Arguments& arguments, PyObject* stream) noexcept;

/// Finds the value of stream= among named arguments; other names are errors. False with a Python exception.
bool only_stream(PyObject* names, PyObject* const* values, PyObject** stream) noexcept;

void add_launcher_type(nanobind::module_& module);
void add_family_type(nanobind::module_& module);

}  // namespace kiln::python
