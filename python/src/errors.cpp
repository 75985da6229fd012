#include "errors.hpp"

#include <cstdarg>
#include <cstdio>

namespace nb = nanobind;

namespace kiln::python {
namespace {

constexpr int kInvalidArgument = 1;

void set(int status, const char* message, const char* specialization, const char* options,
         const char* log) noexcept try {
  const nb::object error =
      nb::module_::import_("kiln._errors").attr("from_status")(status, message, specialization, options, log);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
} catch (nb::python_error& failure) {
  failure.restore();
}

}  // namespace

void set_last_error() noexcept {
  const kiln_error* e = kiln_last_error();
  set(e->status, e->message, e->specialization, e->options, e->log);
}

void raise_last_error() {
  set_last_error();
  throw nb::python_error();
}

void set_invalid(const char* format, ...) noexcept {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  set(kInvalidArgument, text, "", "", "");
}

}  // namespace kiln::python
