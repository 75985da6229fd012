// The extension module kiln._kiln, which kiln/__init__.py re-exports.
#include <nanobind/nanobind.h>

#include "arguments.hpp"
#include "attention.hpp"
#include "blobs.hpp"
#include "device_memory.hpp"
#include "errors.hpp"
#include "kernel.hpp"
#include "operator_type.hpp"
#include "service.hpp"

namespace nb = nanobind;

NB_MODULE(_kiln, m) {
  using namespace kiln::python;
  nb::set_leak_warnings(false);  // a service may live as long as the process
  m.attr("DEVICE_CURRENT") = static_cast<int>(KILN_DEVICE_CURRENT);
  m.attr("DEVICE_NONE") = static_cast<int>(KILN_DEVICE_NONE);
  add_service(m);
  add_blobs(m);
  add_kernel_types(m);
  add_device_memory(m);
  add_operator_type(m);
  add_attention(m);
  m.def("library_version", &kiln_version);
  m.def("process_seal", [] { check(kiln_process_seal()); });
  m.def("capture_begin", &kiln_capture_begin);
  m.def("capture_end", &kiln_capture_end);
  kiln::python::add_tvm_ffi_functions(m);
  m.def("zero_outputs", &zero_outputs, "For tests with a driver whose kernels write nothing.");
  m.def("accept_host_memory", &accept_host_memory,
        "For tests with a driver whose device memory is the host's.");
}
