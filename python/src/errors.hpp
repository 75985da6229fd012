// kiln's errors as Python's: kiln.Error and its children, which kiln/_errors.py defines.
#pragma once

#include <nanobind/nanobind.h>

#include "kiln/kiln.h"

namespace kiln::python {

/// Sets the Python exception for what kiln_last_error() of this thread says. REQUIRES: the GIL.
void set_last_error() noexcept;
/// The same, thrown through nanobind's functions.
[[noreturn]] void raise_last_error();
inline void check(kiln_status status) {
  if (status != KILN_OK) raise_last_error();
}
/// kiln.Error(invalid_argument) without the library.
void set_invalid(const char* format, ...) noexcept __attribute__((format(printf, 1, 2)));

}  // namespace kiln::python
