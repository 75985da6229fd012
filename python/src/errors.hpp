// kiln's errors as Python exceptions: kiln.Error and its subclasses, which kiln/_errors.py defines.
#pragma once

#include <nanobind/nanobind.h>

#include "kiln/kiln.h"

namespace kiln::python {

/// Sets the Python exception for this thread's kiln_last_error(). REQUIRES: the GIL.
void set_last_error() noexcept;
/// Sets that Python exception and throws nanobind::python_error. REQUIRES: the GIL.
[[noreturn]] void raise_last_error();
inline void check(kiln_status status) {
  if (status != KILN_OK) raise_last_error();
}
/// Sets kiln.Error(invalid_argument), for errors that the library did not report. REQUIRES: the GIL.
void set_invalid(const char* format, ...) noexcept __attribute__((format(printf, 1, 2)));

}  // namespace kiln::python
