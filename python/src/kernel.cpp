#include "kernel.hpp"

#include <cstddef>

#include "arguments.hpp"
#include "kernel_type.hpp"

namespace nb = nanobind;

namespace kiln::python {

PyTypeObject* kernel_type = nullptr;

namespace {
PyObject* stream_name = nullptr;  // the interned "stream", so that names are usually compared by address
}

PyObject* launch(KernelObject* self, Arguments& arguments, PyObject* stream) noexcept {
  if (self->device >= 0 && arguments.device() >= 0 && self->device != arguments.device())
    return set_invalid("the arrays lie on device %d, the kernel was loaded on device %d", arguments.device(),
                       self->device),
           nullptr;
  CUstream on = nullptr;
  if (!arguments.stream(stream, &on)) return nullptr;
  if (self->holder->closed()) return Holder::Call::set_closed(), nullptr;
  // The GIL is released: a launch waits while the driver's queue is full, and the work that drains the queue
  // may need the GIL (CuPy's host functions).
  self->holder->begin_launch();
  PyThreadState* const state = PyEval_SaveThread();
  const kiln_status status =
      self->family
          ? kiln_family_launch(self->family, on, arguments.types(), arguments.data(), arguments.count())
          : kiln_kernel_launch(self->kernel, on, arguments.types(), arguments.data(), arguments.count());
  PyEval_RestoreThread(state);
  self->holder->end_launch();
  if (status != KILN_OK) return set_last_error(), nullptr;
  Py_RETURN_NONE;
}

bool only_stream(PyObject* names, PyObject* const* values, PyObject** stream) noexcept {
  *stream = nullptr;
  const Py_ssize_t count = names ? PyTuple_Size(names) : 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const name = PyTuple_GetItem(names, i);
    if (name != stream_name && PyUnicode_CompareWithASCIIString(name, "stream") != 0) {
      PyErr_Format(PyExc_TypeError,
                   "a kernel's arguments are positional, in the manifest's order: %R cannot be given by "
                   "name, only stream= can",
                   name);
      return false;
    }
    *stream = values[i];
  }
  return true;
}

namespace {
KernelObject* of(PyObject* self) { return reinterpret_cast<KernelObject*>(self); }
}  // namespace

PyObject* call_kernel(PyObject* self, PyObject* const* arguments, std::size_t flagged,
                      PyObject* names) noexcept {
  const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(flagged));
  PyObject* stream = nullptr;
  if (names && !only_stream(names, arguments + count, &stream)) return nullptr;
  Arguments taken;
  if (!taken.take(arguments, count)) return nullptr;
  return launch(of(self), taken, stream);
}

void deallocate_kernel(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  of(self)->holder.~shared_ptr();
  PyObject_Free(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

namespace {

bool open(PyObject* self) {
  if (of(self)->holder->closed()) Holder::Call::set_closed();
  return !of(self)->holder->closed();
}

bool info(PyObject* self, kiln_kernel_info* out) {
  *out = {};
  out->struct_size = sizeof *out;
  if (!open(self)) return false;
  if (kiln_kernel_get_info(of(self)->kernel, out) == KILN_OK) return true;
  set_last_error();
  return false;
}

PyObject* get_info(PyObject* self, void*) {
  kiln_kernel_info i;
  if (!info(self, &i)) return nullptr;
  const Owned make(PyImport_ImportModule("kiln._values"));
  if (!make) return nullptr;
  return PyObject_CallMethod(make, "kernel_info", "isIIIIIsss", static_cast<int>(i.outcome), i.key,
                             i.registers, i.spill_bytes, i.shared_bytes, i.max_threads, i.argument_count,
                             i.specialization, i.lowered_name, i.arch);
}

PyObject* get_function(PyObject* self, void*) {
  return open(self) ? PyLong_FromVoidPtr(kiln_kernel_function(of(self)->kernel)) : nullptr;
}

PyObject* represent(PyObject* self) {
  kiln_kernel_info i;
  return info(self, &i) ? PyUnicode_FromFormat("<kiln.Kernel %s>", i.specialization) : nullptr;
}

PyObject* entry(PyObject* self, PyObject* name) {
  const char* const text = PyUnicode_AsUTF8AndSize(name, nullptr);
  const kiln_kernel* out = nullptr;
  if (!text || !open(self)) return nullptr;
  if (kiln_kernel_entry(of(self)->kernel, text, &out) != KILN_OK) return set_last_error(), nullptr;
  return make_kernel(out, of(self)->holder, of(self)->device).release().ptr();
}

PyObject* variable(PyObject* self, PyObject* name) {
  const char* const text = PyUnicode_AsUTF8AndSize(name, nullptr);
  kiln_global out{};
  out.struct_size = sizeof out;
  if (!text || !open(self)) return nullptr;
  if (kiln_kernel_global(of(self)->kernel, text, &out) != KILN_OK) return set_last_error(), nullptr;
  return Py_BuildValue("KK", static_cast<unsigned long long>(out.address),
                       static_cast<unsigned long long>(out.bytes));
}

PyObject* constant(PyObject* self, PyObject* name) {
  const char* const text = PyUnicode_AsUTF8AndSize(name, nullptr);
  int64_t out = 0;
  if (!text || !open(self)) return nullptr;
  if (kiln_kernel_constant(of(self)->kernel, text, &out) != KILN_OK) return set_last_error(), nullptr;
  return PyLong_FromLongLong(out);
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(KernelObject, call), READONLY, nullptr}, {}};
PyMethodDef methods[] = {
    {"entry", entry, METH_O,
     "entry(name)\n--\n\nAnother [[kernel]] of the same image, which shares its variables."},
    {"variable", variable, METH_O,
     "variable(name)\n--\n\n(address, bytes) of a [[global]] in this kernel's context."},
    {"constant", constant, METH_O, "constant(name)\n--\n\nAn integer constant of the source: an [export]."},
    {}};
PyGetSetDef properties[] = {
    {"info", get_info, nullptr, "A KernelInfo: key, registers, spills, how it was obtained.", nullptr},
    {"function", get_function, nullptr, "The CUfunction, for programs that launch it themselves.", nullptr},
    {}};
PyType_Slot slots[] = {
    {Py_tp_doc,
     const_cast<char*>(
         "kernel(*arguments, stream=None)\n--\n\nA loaded kernel. Arguments come in the manifest's order.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate_kernel)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_repr, reinterpret_cast<void*>(represent)},
    {Py_tp_members, members},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {}};
PyType_Spec specification = {
    "kiln.Kernel", sizeof(KernelObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

}  // namespace

nb::object new_object(PyTypeObject* type, const kiln_kernel* kernel, const kiln_family* family,
                      std::shared_ptr<Holder> holder, int device) {
  auto* const self = PyObject_New(KernelObject, type);
  if (!self) throw nb::python_error();
  self->call = call_kernel;
  self->kernel = kernel, self->family = family;
  new (&self->holder) std::shared_ptr<Holder>(std::move(holder));
  self->device = device;
  return nb::steal(reinterpret_cast<PyObject*>(self));
}

nb::object make_kernel(const kiln_kernel* kernel, std::shared_ptr<Holder> holder, int device) {
  return new_object(kernel_type, kernel, nullptr, std::move(holder), device);
}

void add_kernel_types(nb::module_& module) {
  kernel_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&specification));
  stream_name = PyUnicode_InternFromString("stream");
  if (!kernel_type || !stream_name) throw nb::python_error();
  module.attr("Kernel") = nb::borrow(reinterpret_cast<PyObject*>(kernel_type));
  add_family_type(module);
  add_launcher_type(module);
}

}  // namespace kiln::python
