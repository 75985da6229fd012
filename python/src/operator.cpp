// kiln._kiln.Operator: an operator as a function of arrays, on the device and the stream of its arrays.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "kernel_type.hpp"
#include "operands.hpp"
#include "operator_type.hpp"

namespace nb = nanobind;

namespace kiln::python {
namespace {

bool zeroes_outputs = false;

struct Named {
  PyObject* name;  ///< an interned text
  const char* text;
  OperandKind kind;
};

struct State {
  std::string name;
  std::vector<Named> operands;  ///< inputs, then outputs
  std::size_t inputs = 0, results = 0;
  PyObject* resolve = nullptr;  ///< resolve(device, array) -> capsule of a Bound
  PyObject* failed =
      nullptr;  ///< failed(error, device) -> context manager in which the call is made again, or None
  bool no_compile = false, past_seal = false;
  Bound bound[kDevices];
};

struct OperatorObject {
  PyObject_HEAD vectorcallfunc call;
  State* state;
};

State& of(PyObject* self) { return *reinterpret_cast<OperatorObject*>(self)->state; }

// ---- outputs

/// The torch functions and types that outputs are made with. Null where torch is not imported.
struct Torch {
  PyObject *empty_like = nullptr, *empty_strided = nullptr, *names = nullptr;
  PyObject* dtypes[kDtypeCount] = {};
};

const Torch* torch() noexcept {
  static Torch known;  // never released
  if (known.names) return &known;
  const Owned module(PyImport_ImportModule("torch"));
  if (!module) return nullptr;
  constexpr const char* kNames[] = {"float32", "float16", "bfloat16",      "float8_e4m3fn", "float8_e5m2",
                                    "float64", "int8",    "uint8",         "int32",         "uint32",
                                    "int64",   "uint64",  "float8_e8m0fnu"};
  static_assert(std::size(kNames) == kDtypeCount);
  for (int i = 0; i < kDtypeCount; ++i)
    if (!(known.dtypes[i] = PyObject_GetAttrString(module, kNames[i]))) PyErr_Clear();
  known.empty_like = PyObject_GetAttrString(module, "empty_like");
  known.empty_strided = PyObject_GetAttrString(module, "empty_strided");
  if (!known.empty_like || !known.empty_strided) return nullptr;
  known.names = Py_BuildValue("(ss)", "dtype", "device");
  return known.names ? &known : nullptr;
}

PyObject* tuple_of(const std::int64_t* numbers, int count) noexcept {
  PyObject* const out = PyTuple_New(count);
  for (int i = 0; out && i < count; ++i) PyTuple_SetItem(out, i, PyLong_FromLongLong(numbers[i]));
  return out;
}

int dtype_of(const kiln_tensor& t) noexcept {
  for (int i = 0; i < kDtypeCount; ++i)
    if (dlpack_code(static_cast<Dtype>(i)) == t.dtype_code &&
        size_of(static_cast<Dtype>(i)) * 8 == t.dtype_bits)
      return i;
  return -1;
}

bool is_contiguous(const kiln_tensor& t) noexcept {
  std::int64_t expected = 1;
  for (int i = t.ndim - 1; i >= 0; --i) {
    if (t.strides && t.shape[i] != 1 && t.strides[i] != expected) return false;
    expected *= t.shape[i];
  }
  return true;
}

bool is_like(const kiln_tensor& a, const kiln_tensor& b) noexcept {
  return a.ndim == b.ndim && a.dtype_code == b.dtype_code && a.dtype_bits == b.dtype_bits &&
         std::equal(a.shape, a.shape + a.ndim, b.shape);
}

/// One call, which the allocator gets.
class Call {
 public:
  /// `on_given_stream`: the caller said the stream, which need not be the current one of the arrays' library.
  Call(State& state, Operands& operands, PyObject* const* given, bool on_given_stream) noexcept
      : state_(state), operands_(operands), given_(given), on_given_stream_(on_given_stream) {}
  ~Call() {
    for (PyObject* object : made_) Py_XDECREF(object);
  }
  Call(const Call&) = delete;

  static std::int32_t allocate(std::size_t index, const kiln_tensor* wanted, kiln_tensor* out,
                               void* user) noexcept {
    Call& self = *static_cast<Call*>(user);
    PyEval_RestoreThread(self.thread_);
    const bool done = self.make(index, *wanted, out);
    self.thread_ = PyEval_SaveThread();
    return done ? 0 : 1;
  }

  /// The GIL is released: a launch waits while the driver's queue is full, and the work that drains the queue may
  /// need the GIL.
  kiln_status run(kiln_operator* handle, Holder& holder, const kiln_call& call) noexcept {
    stream_ = call.stream;
    holder.begin_launch();
    thread_ = PyEval_SaveThread();
    const kiln_status status = kiln_operator_call(handle, &call);
    PyEval_RestoreThread(thread_);
    holder.end_launch();
    return status;
  }

  /// The results: None, an array or a tuple of arrays. A new reference.
  PyObject* results() noexcept {
    PyObject* const out = state_.results > 1 ? PyTuple_New(static_cast<Py_ssize_t>(state_.results)) : nullptr;
    if (state_.results > 1 && !out) return nullptr;
    for (std::size_t i = 0; i < state_.results; ++i) {
      const std::size_t operand = state_.inputs + i;
      PyObject* const made = made_[operand] ? made_[operand] : given_[operand] ? given_[operand] : Py_None;
      Py_INCREF(made);
      if (!out) return made;
      PyTuple_SetItem(out, static_cast<Py_ssize_t>(i), made);
    }
    if (out) return out;
    Py_RETURN_NONE;
  }

 private:
  bool make(std::size_t index, const kiln_tensor& wanted, kiln_tensor* out) noexcept {
    if (index >= Operands::kMost) return false;
    const char* const name = index < state_.operands.size() ? state_.operands[index].text : "scratch memory";
    Py_XDECREF(made_[index]);
    made_[index] = on_given_stream_ ? make_on_stream(index, wanted) : make_array(index, wanted);
    if (zeroes_outputs && made_[index] && index >= state_.inputs)
      Py_XDECREF(PyObject_CallMethod(made_[index], "zero_", nullptr));
    return made_[index] && operands_.read(made_[index], name, out);
  }

  PyObject* make_array(std::size_t index, const kiln_tensor& wanted) noexcept {
    return index < state_.inputs ? copy(index) : empty(wanted);
  }

  /// With the call's stream as the current one of the arrays' library. A copy is then made before the kernel reads
  /// it, and freed memory is used again after the kernel.
  PyObject* make_on_stream(std::size_t index, const kiln_tensor& wanted) noexcept {
    const Owned module(PyImport_ImportModule("kiln._arrays"));
    PyObject* const first = operands_.first();
    const Owned context(module ? PyObject_CallMethod(module, "on_stream", "OK", first ? first : Py_None,
                                                     reinterpret_cast<unsigned long long>(stream_))
                               : nullptr);
    const Owned entered(context ? PyObject_CallMethod(context, "__enter__", nullptr) : nullptr);
    if (!entered) return nullptr;
    PyObject* const out = make_array(index, wanted);
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    const Owned left(PyObject_CallMethod(context, "__exit__", "OOO", Py_None, Py_None, Py_None));
    if (!left) PyErr_Clear();
    PyErr_Restore(type, value, trace);
    return out;
  }

  PyObject* copy(std::size_t input) noexcept {
    const Owned module(PyImport_ImportModule("kiln._arrays"));
    return module ? PyObject_CallMethod(module, "contiguous", "O", given_[input]) : nullptr;
  }

  PyObject* empty(const kiln_tensor& wanted) noexcept {
    PyObject* const first = operands_.first();
    const Adapter* const library = operands_.source().library;
    if (library && library->kind == Adapter::Kind::torch) {
      const Torch* const t = torch();
      const int dtype = dtype_of(wanted);
      if (!t) return nullptr;
      if (first_tensor() && is_like(wanted, *first_tensor()) && is_contiguous(wanted) &&
          is_contiguous(*first_tensor()))
        return PyObject_Vectorcall(t->empty_like, &first, 1, nullptr);
      if (dtype >= 0 && t->dtypes[dtype]) {
        const Owned shape(tuple_of(wanted.shape, wanted.ndim)),
            strides(tuple_of(wanted.strides, wanted.ndim)), device(PyObject_GetAttrString(first, "device"));
        if (!shape || !strides || !device) return nullptr;
        PyObject* const all[] = {shape, strides, t->dtypes[dtype], device};
        return PyObject_Vectorcall(t->empty_strided, all, 2, t->names);
      }
    }
    const Owned module(PyImport_ImportModule("kiln._arrays")), shape(tuple_of(wanted.shape, wanted.ndim)),
        strides(is_contiguous(wanted) ? (Py_INCREF(Py_None), Py_None)
                                      : tuple_of(wanted.strides, wanted.ndim));
    if (!module || !shape || !strides) return nullptr;
    return PyObject_CallMethod(module, "empty", "OOOii", first ? first : Py_None,
                               static_cast<PyObject*>(shape), static_cast<PyObject*>(strides),
                               dtype_of(wanted), wanted.device_id);
  }

  const kiln_tensor* first_tensor() const noexcept {
    for (std::size_t i = 0; i < operands_.count(); ++i)
      if (operands_.data()[i].kind == KILN_OPERAND_TENSOR) return &operands_.tensor(i);
    return nullptr;
  }

  State& state_;
  Operands& operands_;
  PyObject* const* const given_;  ///< the operands' objects
  const bool on_given_stream_;
  CUstream stream_ = nullptr;
  PyThreadState* thread_ = nullptr;
  PyObject* made_[Operands::kMost] = {};
};

// ---- calls

/// The operator on the arrays' device. Null with a Python exception.
Bound* bound(State& state, int device, PyObject* array) noexcept {
  if (device >= kDevices)
    return set_invalid("device %d: kiln supports device numbers below %d", device, kDevices), nullptr;
  Bound& out = state.bound[device < 0 ? 0 : device];
  if (out.handle && !out.holder->closed()) return &out;
  const Owned capsule(PyObject_CallFunction(state.resolve, "iO", device, array ? array : Py_None));
  auto* const found = capsule ? static_cast<Bound*>(PyCapsule_GetPointer(capsule, "kiln.operator")) : nullptr;
  if (!found) return nullptr;
  out = *found;
  return &out;
}

/// A new reference; null with a Python exception. `device` receives the ordinal of the arrays' device, or -1.
PyObject* run(State& state, PyObject* const* given, PyObject* stream, int* device) noexcept {
  Operands operands(state.name.c_str());
  for (std::size_t i = 0; i < state.operands.size(); ++i)
    if (given[i] && !operands.take(i, state.operands[i].kind, state.operands[i].text, given[i]))
      return nullptr;
  *device = operands.source().device;
  Bound* const on = bound(state, *device, operands.first());
  if (!on) return nullptr;
  Call made(state, operands, given, stream && stream != Py_None);
  kiln_call call{sizeof call,    nullptr, operands.data(),  operands.count(),
                 Call::allocate, &made,   state.no_compile, state.past_seal};
  const Bound held = *on;  // forget() may run in the stream's code
  if (!operands.source().choose(stream, &call.stream)) return nullptr;
  if (held.holder->closed()) return Holder::Call::set_closed(), nullptr;
  if (made.run(held.handle, *held.holder, call) == KILN_OK) return made.results();
  if (!PyErr_Occurred()) set_last_error();  // else the allocator has raised one
  return nullptr;
}

/// The objects of a call by operand. False with a Python exception.
bool sort(const State& state, PyObject* const* arguments, std::size_t count, PyObject* names,
          PyObject** given, PyObject** stream) noexcept {
  if (count > state.operands.size())
    return PyErr_Format(PyExc_TypeError, "%s takes at most %zu operands, and %zu were given",
                        state.name.c_str(), state.operands.size(), count),
           false;
  for (std::size_t i = 0; i < count; ++i) given[i] = arguments[i];
  const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* const name = PyTuple_GetItem(names, i);
    PyObject* const value = arguments[count + static_cast<std::size_t>(i)];
    std::size_t at = 0;
    while (at < state.operands.size() && state.operands[at].name != name) ++at;
    for (std::size_t j = 0; at == state.operands.size() && j < state.operands.size(); ++j)
      if (PyUnicode_Compare(state.operands[j].name, name) == 0) at = j, j = state.operands.size() - 1;
    if (at < state.operands.size()) {
      if (given[at])
        return PyErr_Format(PyExc_TypeError, "%s: %U is given twice", state.name.c_str(), name), false;
      given[at] = value;
    } else if (PyUnicode_CompareWithASCIIString(name, "stream") == 0) {
      *stream = value;
    } else {
      std::string known;
      for (const Named& one : state.operands) (known += one.text) += ' ';
      return PyErr_Format(PyExc_TypeError, "%s has no operand %R; operands: %sstream", state.name.c_str(),
                          name, known.c_str()),
             false;
    }
  }
  return true;
}

/// After a call that raised an exception, and launched nothing. Where failed() gives a context manager, the call is
/// made again in it. Otherwise the exception is restored.
PyObject* mended(State& state, PyObject* const* given, PyObject* stream, int device) noexcept {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  const Owned answer(PyObject_CallFunction(state.failed, "Oi", value ? value : Py_None, device));
  if (answer && answer != Py_None) {  // a context manager, in which the call is made again
    const Owned entered(PyObject_CallMethod(answer, "__enter__", nullptr));
    PyObject* const out = entered ? run(state, given, stream, &device) : nullptr;
    PyObject *inner_type = nullptr, *inner = nullptr, *inner_trace = nullptr;
    PyErr_Fetch(&inner_type, &inner, &inner_trace);
    const Owned left(PyObject_CallMethod(answer, "__exit__", "OOO", Py_None, Py_None, Py_None));
    Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
    if (inner_type) PyErr_Restore(inner_type, inner, inner_trace);
    return out;
  }
  if (!answer) {  // failed() raised an error of its own
    Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
    return nullptr;
  }
  PyErr_Restore(type, value, trace);
  return nullptr;
}

PyObject* called(PyObject* self, PyObject* const* arguments, std::size_t flagged, PyObject* names) noexcept {
  State& state = of(self);
  PyObject* given[Operands::kMost] = {};
  PyObject* stream = nullptr;
  if (!sort(state, arguments, static_cast<std::size_t>(PyVectorcall_NARGS(flagged)), names, given, &stream))
    return nullptr;
  int device = -1;
  PyObject* const out = run(state, given, stream, &device);
  return out ? out : mended(state, given, stream, device);
}

// ---- the type

bool take_operands(State& state, PyObject* list, bool inputs) noexcept {
  constexpr const char* kKinds[] = {"tensor", "integer", "boolean", "number", "numbers", "dtype", "choice"};
  const Py_ssize_t count = PySequence_Size(list);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Owned pair(PySequence_GetItem(list, i));
    const char *name = nullptr, *kind = nullptr;
    if (!pair || !PyArg_ParseTuple(pair, "ss", &name, &kind)) return false;
    std::size_t k = 0;
    while (k < std::size(kKinds) && std::strcmp(kKinds[k], kind) != 0) ++k;
    if (k == std::size(kKinds) || state.operands.size() == Operands::kMost)
      return set_invalid("operand %s has the unknown kind %s", name, kind), false;
    PyObject* const text = PyUnicode_InternFromString(name);
    if (!text) return false;
    state.operands.push_back({text, PyUnicode_AsUTF8AndSize(text, nullptr), static_cast<OperandKind>(k)});
  }
  (inputs ? state.inputs : state.results) = static_cast<std::size_t>(count);
  return count >= 0;
}

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject*) {
  const char* name = nullptr;
  PyObject *inputs = nullptr, *outputs = nullptr, *resolve = nullptr, *failed = nullptr;
  if (!PyArg_ParseTuple(arguments, "sOOOO", &name, &inputs, &outputs, &resolve, &failed)) return nullptr;
  auto* const self = reinterpret_cast<OperatorObject*>(PyType_GenericAlloc(type, 0));
  if (!self) return nullptr;
  self->call = called;
  self->state = new State;
  self->state->name = name;
  Py_INCREF(resolve), Py_INCREF(failed);
  self->state->resolve = resolve, self->state->failed = failed;
  auto* const object = reinterpret_cast<PyObject*>(self);
  if (take_operands(*self->state, inputs, true) && take_operands(*self->state, outputs, false)) return object;
  return Py_DECREF(object), nullptr;
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  if (const State* const state = reinterpret_cast<OperatorObject*>(object)->state) {
    Py_VISIT(state->resolve);
    Py_VISIT(state->failed);
  }
  return 0;
}

int clear(PyObject* object) {
  if (State* const state = reinterpret_cast<OperatorObject*>(object)->state) {
    Py_CLEAR(state->resolve);
    Py_CLEAR(state->failed);
  }
  return 0;
}

void deallocate(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  clear(object);
  State* const state = reinterpret_cast<OperatorObject*>(object)->state;
  for (const Named& operand : state->operands) Py_DECREF(operand.name);
  delete state;
  PyObject_GC_Del(object);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

PyObject* forget(PyObject* object, PyObject*) {
  for (Bound& one : of(object).bound) one = {};
  Py_RETURN_NONE;
}

PyObject* allow(PyObject* object, PyObject* arguments) {
  int no_compile = 0, past_seal = 0;
  if (!PyArg_ParseTuple(arguments, "pp", &no_compile, &past_seal)) return nullptr;
  of(object).no_compile = no_compile != 0, of(object).past_seal = past_seal != 0;
  Py_RETURN_NONE;
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(OperatorObject, call), READONLY, nullptr}, {}};
PyMethodDef methods[] = {
    {"forget", forget, METH_NOARGS, "forget()\n--\n\nAsks resolve() again on every device."},
    {"allow", allow, METH_VARARGS,
     "allow(no_compile, past_seal)\n--\n\nSays how a kernel is made that is not ready (kiln_call in "
     "kiln.h)."},
    {}};
PyType_Slot slots[] = {
    {Py_tp_doc,
     const_cast<char*>("Operator(name, inputs, outputs, resolve, failed)\n--\n\noperator(*operands, "
                       "stream=None, **operands)")},
    {Py_tp_new, reinterpret_cast<void*>(make)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_members, members},
    {Py_tp_methods, methods},
    {}};
PyType_Spec specification = {"kiln._kiln.Operator", sizeof(OperatorObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

nb::object bind_operator(kiln_operator* handle, std::shared_ptr<Holder> holder) {
  auto* const bound = new Bound{handle, std::move(holder)};
  PyObject* const capsule = PyCapsule_New(bound, "kiln.operator", [](PyObject* object) {
    delete static_cast<Bound*>(PyCapsule_GetPointer(object, "kiln.operator"));
  });
  if (capsule) return nb::steal(capsule);
  delete bound;
  throw nb::python_error();
}

void zero_outputs(bool on) noexcept { zeroes_outputs = on; }

void add_operator_type(nb::module_& module) {
  PyObject* const type = PyType_FromSpec(&specification);
  if (!type) throw nb::python_error();
  module.attr("Operator") = nb::steal(type);
}

}  // namespace kiln::python
