#include "attention.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <vector>

#include "kernel_type.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace kiln::python {
namespace {

using Array = std::optional<std::vector<int32_t>>;

const int32_t* c_array(const Array& array) { return array ? array->data() : nullptr; }

const kiln_kernel* kernel_of(nb::handle object) {
  if (Py_TYPE(object.ptr()) != kernel_type) throw nb::type_error("expected a kiln.Kernel");
  auto* const kernel = reinterpret_cast<KernelObject*>(object.ptr());
  if (!kernel->holder->closed()) return kernel->kernel;
  Holder::Call::set_closed();
  throw nb::python_error();
}

kiln_attention_limits limits_of(int max_requests, int max_tokens, int kv_heads, int workers) {
  return {sizeof(kiln_attention_limits), max_requests, max_tokens, kv_heads, workers};
}

/// The bytes of a Python object with a writable buffer. Holds the buffer; throws a Python exception.
class Writable {
 public:
  explicit Writable(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_WRITABLE) != 0) throw nb::python_error();
  }
  ~Writable() { PyBuffer_Release(&view_); }
  Writable(const Writable&) = delete;
  void* data() const noexcept { return view_.buf; }
  std::size_t size() const noexcept { return static_cast<std::size_t>(view_.len); }

 private:
  Py_buffer view_;
};

nb::object sizes(nb::handle kernel, int max_requests, int kv_heads, int max_tokens, int workers) {
  const kiln_attention_limits limits = limits_of(max_requests, max_tokens, kv_heads, workers);
  kiln_attention_sizes out{};
  out.struct_size = sizeof out;
  check(kiln_kernel_attention_sizes(kernel_of(kernel), &limits, &out));
  return nb::module_::import_("kiln._values")
      .attr("AttentionSizes")(out.plan_bytes, out.workspace_bytes, out.workers);
}

/// The number of requests, on which all arrays must agree: the C ABI does not know the arrays' lengths.
int requests_of(const Array& qo_indptr, const Array& kv_indptr, const Array& kv_len,
                const Array& last_page_len) {
  std::optional<std::size_t> requests;
  const auto agree = [&](const Array& array, std::size_t more, const char* name) {
    if (!array) return;
    const bool has = array->size() >= more;
    if (has && !requests) requests = array->size() - more;
    if (has && *requests == array->size() - more) return;
    set_invalid("%s has %zu entries, which does not match the other lengths", name, array->size());
    throw nb::python_error();
  };
  agree(kv_indptr, 1, "kv_indptr");
  agree(qo_indptr, 1, "qo_indptr");
  agree(kv_len, 0, "kv_len");
  agree(last_page_len, 0, "last_page_len");
  return static_cast<int>(requests.value_or(0));
}

nb::object plan(nb::handle kernel, nb::handle buffer, int max_requests, int kv_heads, const Array& kv_indptr,
                const Array& qo_indptr, const Array& kv_len, const Array& last_page_len, int page_size,
                int window_left, int window_right, int max_tokens, int workers) {
  const kiln_attention_limits limits = limits_of(max_requests, max_tokens, kv_heads, workers);
  const kiln_attention_lengths lengths{sizeof(kiln_attention_lengths),
                                       requests_of(qo_indptr, kv_indptr, kv_len, last_page_len),
                                       page_size,
                                       window_left,
                                       c_array(qo_indptr),
                                       c_array(kv_indptr),
                                       c_array(kv_len),
                                       c_array(last_page_len),
                                       window_right};
  kiln_attention_plan out{};
  out.struct_size = sizeof out;
  const Writable bytes(buffer);
  check(kiln_kernel_attention_plan(kernel_of(kernel), &limits, &lengths, bytes.data(), bytes.size(), &out));
  return nb::module_::import_("kiln._values")
      .attr("AttentionPlan")(out.bytes, out.items, out.parts, out.workers);
}

}  // namespace

void add_attention(nb::module_& m) {
  m.def("attention_sizes", &sizes, "kernel"_a, nb::kw_only(), "max_requests"_a, "kv_heads"_a,
        "max_tokens"_a = 0, "workers"_a = 0);
  m.def("attention_plan", &plan, "kernel"_a, "buffer"_a, nb::kw_only(), "max_requests"_a, "kv_heads"_a,
        "kv_indptr"_a.none(), "qo_indptr"_a.none() = nb::none(), "kv_len"_a.none() = nb::none(),
        "last_page_len"_a.none() = nb::none(), "page_size"_a = 0, "window_left"_a = -1, "window_right"_a = -1,
        "max_tokens"_a = 0, "workers"_a = 0);
}

}  // namespace kiln::python
