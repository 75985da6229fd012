// kiln.Family: a callable as kiln.Kernel, whose launches pick a member by an argument.
#include <cstddef>

#include "kernel.hpp"
#include "kernel_type.hpp"

namespace nb = nanobind;

namespace kiln::python {
namespace {

PyTypeObject* family_type = nullptr;

KernelObject* of(PyObject* self) { return reinterpret_cast<KernelObject*>(self); }

bool info(PyObject* self, kiln_family_info* out) {
  *out = {};
  out->struct_size = sizeof *out;
  if (of(self)->holder->closed()) return Holder::Call::set_closed(), false;
  if (kiln_family_get_info(of(self)->family, out) == KILN_OK) return true;
  set_last_error();
  return false;
}

PyObject* get_by(PyObject* self, void*) {
  kiln_family_info i;
  return info(self, &i) ? PyUnicode_FromString(i.by) : nullptr;
}

PyObject* get_parameter(PyObject* self, void*) {
  kiln_family_info i;
  return info(self, &i) ? PyUnicode_FromString(i.parameter) : nullptr;
}

PyObject* get_edges(PyObject* self, void*) {
  kiln_family_info i;
  if (!info(self, &i)) return nullptr;
  PyObject* const out = PyTuple_New(static_cast<Py_ssize_t>(i.member_count));
  for (uint32_t m = 0; out && m < i.member_count; ++m) {
    PyObject* const edge = PyLong_FromLongLong(i.edges[m]);
    if (!edge) return Py_DECREF(out), nullptr;
    PyTuple_SetItem(out, static_cast<Py_ssize_t>(m), edge);
  }
  return out;
}

PyObject* represent(PyObject* self) {
  kiln_family_info i;
  kiln_kernel_info first{};
  first.struct_size = sizeof first;
  const kiln_kernel* member = nullptr;
  if (!info(self, &i)) return nullptr;
  if (kiln_family_member(of(self)->family, 0, &member) != KILN_OK ||
      kiln_kernel_get_info(member, &first) != KILN_OK)
    return set_last_error(), nullptr;
  return PyUnicode_FromFormat("<kiln.Family of %u, first %s>", i.member_count, first.specialization);
}

PyObject* member(PyObject* self, PyObject* value) {
  const long long number = PyLong_AsLongLong(value);
  const kiln_kernel* out = nullptr;
  if (number == -1 && PyErr_Occurred()) return nullptr;
  if (of(self)->holder->closed()) return Holder::Call::set_closed(), nullptr;
  if (kiln_family_member(of(self)->family, number, &out) != KILN_OK) return set_last_error(), nullptr;
  return make_kernel(out, of(self)->holder, of(self)->device).release().ptr();
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(KernelObject, call), READONLY, nullptr}, {}};
PyMethodDef methods[] = {{"member", member, METH_O,
                          "member(value)\n--\n\nThe Kernel that serves this value of the family's argument."},
                         {}};
PyGetSetDef properties[] = {
    {"by", get_by, nullptr, "The argument that picks the member.", nullptr},
    {"parameter", get_parameter, nullptr, "The parameter whose values are the edges.", nullptr},
    {"edges", get_edges, nullptr, "The greatest value that each member is for, in ascending order.", nullptr},
    {}};
PyType_Slot slots[] = {
    {Py_tp_doc,
     const_cast<char*>("family(*arguments, stream=None)\n--\n\nAll members of a family. Each launch "
                       "picks one by the value of an argument.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate_kernel)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_repr, reinterpret_cast<void*>(represent)},
    {Py_tp_members, members},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {}};
PyType_Spec specification = {
    "kiln.Family", sizeof(KernelObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

}  // namespace

nb::object make_family(const kiln_family* family, std::shared_ptr<Holder> holder, int device) {
  return new_object(family_type, nullptr, family, std::move(holder), device);
}

void add_family_type(nb::module_& module) {
  family_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&specification));
  if (!family_type) throw nb::python_error();
  module.attr("Family") = nb::borrow(reinterpret_cast<PyObject*>(family_type));
}

}  // namespace kiln::python
