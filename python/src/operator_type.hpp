// The type kiln._kiln.Operator.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "holder.hpp"
#include "kiln/dtype.hpp"
#include "kiln/kiln.h"

namespace kiln::python {

inline constexpr int kDevices = 64;

/// The operator of one device.
struct Bound {
  kiln_operator* handle = nullptr;
  std::shared_ptr<Holder> holder;
};

/// A capsule of an operator that a service has opened. Operator's resolve() returns it.
nanobind::object bind_operator(kiln_operator* handle, std::shared_ptr<Holder> holder);

/// tvm_ffi_function() and tvm_ffi_forget().
void add_tvm_ffi_functions(nanobind::module_& module);

/// For tests with a driver whose kernels write nothing: new torch tensors are zeroed.
void zero_outputs(bool on) noexcept;

void add_operator_type(nanobind::module_& module);

}  // namespace kiln::python
