// The type kiln._kiln.Operator.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "holder.hpp"
#include "kiln/dtype.hpp"

namespace kiln::python {

/// A capsule of an operator that a service has opened. Operator's resolve() returns it.
nanobind::object bind_operator(kiln_operator* handle, std::shared_ptr<Holder> holder);

/// For tests with a driver whose kernels write nothing: new torch tensors are zeroed.
void zero_outputs(bool on) noexcept;

void add_operator_type(nanobind::module_& module);

}  // namespace kiln::python
