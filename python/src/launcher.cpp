// kiln._kiln.Launcher: the kernels of one template by device and parameters. A call finds and launches one.
#include <cstddef>

#include "arguments.hpp"
#include "kernel_type.hpp"

namespace nb = nanobind;

namespace kiln::python {
namespace {

constexpr int kDevices = 64;

struct LauncherObject {
  PyObject_HEAD vectorcallfunc call;
  PyObject* miss;               ///< miss(device, parameters) -> Kernel
  PyObject* failed;             ///< failed(device, error, launch) -> bool: true when launch() was repaired
  PyObject* kernels[kDevices];  ///< dictionaries by parameters; null until the device's first kernel
};

LauncherObject* of(PyObject* self) { return reinterpret_cast<LauncherObject*>(self); }

/// The known kernel, or the kernel that miss() makes. A new reference; null with a Python exception.
PyObject* find(LauncherObject* self, int device, PyObject* parameters) noexcept {
  PyObject*& kernels = self->kernels[device];
  if (!kernels && !(kernels = PyDict_New())) return nullptr;
  if (PyObject* const found = PyDict_GetItemWithError(kernels, parameters)) return Py_INCREF(found), found;
  if (PyErr_Occurred()) return nullptr;
  PyObject* const made = PyObject_CallFunction(self->miss, "iO", device, parameters);
  if (!made) return nullptr;
  if (Py_TYPE(made) != kernel_type) {
    PyErr_SetString(PyExc_TypeError, "miss() did not return a kiln.Kernel");
  } else if (PyDict_SetItem(kernels, parameters, made) == 0) {
    return made;
  }
  Py_DECREF(made);
  return nullptr;
}

/// Calls failed() after a launch that raised an exception; nothing has run then.
/// failed() may launch the kernel itself, in another context. Otherwise the exception is restored.
PyObject* mended(LauncherObject* self, PyObject* kernel, PyObject* const* given, std::size_t count,
                 int device) noexcept {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  const Owned partial(PyImport_ImportModule("functools")),
      whole(PyTuple_New(static_cast<Py_ssize_t>(count) + 1));
  if (partial && whole) {
    Py_INCREF(kernel);
    PyTuple_SetItem(whole, 0, kernel);
    for (std::size_t i = 0; i < count; ++i) {
      Py_INCREF(given[i]);
      PyTuple_SetItem(whole, static_cast<Py_ssize_t>(i) + 1, given[i]);
    }
    const Owned make(PyObject_GetAttrString(partial, "partial")),
        launch_it(make ? PyObject_CallObject(make, whole) : nullptr);
    const Owned done(launch_it ? PyObject_CallFunction(self->failed, "iOO", device, value ? value : Py_None,
                                                       static_cast<PyObject*>(launch_it))
                               : nullptr);
    if (done && done == Py_True) {
      Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
      Py_RETURN_NONE;
    }
  }
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
  return nullptr;
}

PyObject* called(PyObject* object, PyObject* const* given, std::size_t flagged, PyObject* names) noexcept {
  LauncherObject* const self = of(object);
  const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(flagged));
  if (count == 0 || names || !PyTuple_Check(given[0])) {
    PyErr_SetString(PyExc_TypeError, "expected (parameters, *arguments), the first a tuple");
    return nullptr;
  }
  Arguments arguments;
  if (!arguments.take(given + 1, count - 1)) return nullptr;
  const int device = arguments.device() < 0 ? 0 : arguments.device();
  if (device >= kDevices)
    return set_invalid("device %d: kiln supports device numbers below %d", device, kDevices), nullptr;
  const Owned kernel(find(self, device, given[0]));
  if (!kernel) return nullptr;
  auto* const found = reinterpret_cast<KernelObject*>(static_cast<PyObject*>(kernel));
  if (found->holder->closed()) return Holder::Call::set_closed(), nullptr;
  PyObject* const result = launch(found, arguments, nullptr);
  return result ? result : mended(self, kernel, given + 1, count - 1, device);
}

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject *miss = nullptr, *failed = nullptr;
  if (!PyArg_ParseTuple(arguments, "OO", &miss, &failed)) return nullptr;
  auto* const self = of(PyType_GenericAlloc(type, 0));
  if (!self) return nullptr;
  self->call = called;
  Py_INCREF(miss), Py_INCREF(failed);
  self->miss = miss, self->failed = failed;
  return reinterpret_cast<PyObject*>(self);
}

/// A template's Python object holds its launcher, and miss() is a method of that object.
/// The garbage collector must see this cycle.
int traverse(PyObject* object, visitproc visit, void* arg) {
  LauncherObject* const self = of(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->miss);
  Py_VISIT(self->failed);
  for (PyObject* kernels : self->kernels) Py_VISIT(kernels);
  return 0;
}

int clear(PyObject* object) {
  LauncherObject* const self = of(object);
  Py_CLEAR(self->miss);
  Py_CLEAR(self->failed);
  for (PyObject*& kernels : self->kernels) Py_CLEAR(kernels);
  return 0;
}

void deallocate(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  clear(object);
  PyObject_GC_Del(object);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

PyObject* forget(PyObject* object, PyObject*) {
  for (PyObject*& kernels : of(object)->kernels) Py_CLEAR(kernels);
  Py_RETURN_NONE;
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(LauncherObject, call), READONLY, nullptr}, {}};
PyMethodDef methods[] = {
    {"forget", forget, METH_NOARGS, "forget()\n--\n\nAsks miss() again for every kernel."}, {}};
PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Launcher(miss, failed)\n--\n\nlauncher(parameters, *arguments)")},
    {Py_tp_new, reinterpret_cast<void*>(make)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_members, members},
    {Py_tp_methods, methods},
    {}};
PyType_Spec specification = {"kiln._kiln.Launcher", sizeof(LauncherObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

void add_launcher_type(nb::module_& module) {
  PyObject* const type = PyType_FromSpec(&specification);
  if (!type) throw nb::python_error();
  module.attr("Launcher") = nb::steal(type);
}

}  // namespace kiln::python
