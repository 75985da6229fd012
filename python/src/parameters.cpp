#include "parameters.hpp"

#include <nanobind/stl/string.h>

#include "errors.hpp"

namespace nb = nanobind;

namespace kiln::python {

Parameters::Parameters(const nb::args& positional, const nb::dict& named) {
  if (positional.size() > 0 && named.size() > 0) {
    set_invalid("parameters are given by position or by name, not both");
    throw nb::python_error();
  }
  for (const nb::handle value : positional) add(value);
  for (const auto [name, value] : named) {
    names_.push_back(keep(nb::cast<std::string>(nb::str(name))).c_str());
    add(value);
  }
  if (values_.empty()) values_.reserve(1);  // values() of a template without parameters
}

void Parameters::add(nb::handle value) {
  kiln_value out{};
  if (value.is_none()) {
    out.kind = KILN_VALUE_UNSET;
  } else if (PyBool_Check(value.ptr())) {
    out.kind = KILN_VALUE_BOOLEAN;
    out.integer = value.ptr() == Py_True;
  } else if (PyLong_Check(value.ptr())) {
    out.kind = KILN_VALUE_INTEGER;
    out.integer = PyLong_AsLongLong(value.ptr());
    if (out.integer == -1 && PyErr_Occurred()) throw nb::python_error();
  } else {
    // Text, or an element type of torch, numpy or CuPy.
    const std::string& text =
        keep(nb::cast<std::string>(nb::module_::import_("kiln._values").attr("parameter_text")(value)));
    out.kind = KILN_VALUE_TEXT;
    out.text = text.data();
    out.text_size = static_cast<int32_t>(text.size());
  }
  values_.push_back(out);
}

}  // namespace kiln::python
