#include "blobs.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <utility>

namespace nb = nanobind;
using namespace nb::literals;

namespace kiln::python {
namespace {

/// Bytes of a Python object with the buffer protocol, which stay where they are while this object lives.
class View {
 public:
  explicit View(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  View(const View&) = delete;
  ~View() { PyBuffer_Release(&view_); }  // with the GIL: destroyed by its caller
  const void* data() const noexcept { return view_.buf; }
  std::size_t size() const noexcept { return static_cast<std::size_t>(view_.len); }

 private:
  Py_buffer view_{};
};

/// A text of kiln's as bytes, or None without any.
class Given {
 public:
  Given() { text.struct_size = sizeof text; }
  Given(const Given&) = delete;
  ~Given() { kiln_text_release(&text); }
  nb::object bytes() const { return text.data ? nb::object(nb::bytes(text.data, text.size)) : nb::none(); }
  kiln_text text{};
};

class Lease {
 public:
  Lease(std::shared_ptr<Holder> holder, kiln_lease* held) : holder_(std::move(holder)), held_(held) {}
  Lease(const Lease&) = delete;
  ~Lease() { end(); }
  bool held() const noexcept { return held_ != nullptr; }
  kiln_lease* take() noexcept { return std::exchange(held_, nullptr); }
  void end() {
    if (!held_ || holder_->closed()) return;
    kiln_lease* const ended = take();
    const nb::gil_scoped_release release;
    kiln_lease_end(ended);
  }

 private:
  std::shared_ptr<Holder> holder_;
  kiln_lease* held_;
};

class Blobs {
 public:
  Blobs(std::shared_ptr<Holder> holder, kiln_blobs* handle) : holder_(std::move(holder)), handle_(handle) {}

  nb::object get(nb::handle key) const {
    const View k(key);
    Given out;
    call(holder_, [&] { return kiln_blob_get(handle_, k.data(), k.size(), &out.text); });
    return out.bytes();
  }
  int put(nb::handle key, nb::handle data, Lease* lease) const {
    const View k(key), bytes(data);
    kiln_lease* const held = lease ? lease->take() : nullptr;
    int32_t state = 0;
    call(holder_, [&] {
      return kiln_blob_put(handle_, k.data(), k.size(), bytes.data(), bytes.size(), held, &state);
    });
    return state;
  }
  /// In the main thread a signal's handler, such as the one of Ctrl-C, runs while the lease is waited for.
  nb::tuple lease(nb::handle key, double wait) const {
    const View k(key);
    Given out;
    kiln_lease* held = nullptr;
    bool raised = false;
    const auto interrupted = is_main_thread() ? &signal_raises : nullptr;
    call(holder_, [&] {
      const kiln_status status = kiln_blob_lease_interruptible(handle_, k.data(), k.size(), wait, interrupted,
                                                               &raised, &out.text, &held);
      return raised ? KILN_OK : status;
    });
    if (raised) {
      kiln_lease_end(held);
      throw nb::python_error();  // what the handler raised
    }
    return nb::make_tuple(
        out.bytes(), held ? nb::cast(new Lease(holder_, held), nb::rv_policy::take_ownership) : nb::none());
  }
  bool flush(double wait) const {
    int32_t flushed = 0;
    call(holder_, [&] { return kiln_blobs_flush(handle_, wait, &flushed); });
    return flushed != 0;
  }
  std::string list() const {
    Given out;
    call(holder_, [&] { return kiln_blobs_list(handle_, &out.text); });
    return {out.text.data, out.text.size};
  }
  bool remove(nb::handle key) const {
    const View k(key);
    int32_t deleted = 0;
    call(holder_, [&] { return kiln_blob_delete(handle_, k.data(), k.size(), &deleted); });
    return deleted != 0;
  }
  void identify(nb::handle key, nb::handle identity) const {
    const View k(key), text(identity);
    call(holder_, [&] { return kiln_blob_identify(handle_, k.data(), k.size(), text.data(), text.size()); });
  }

 private:
  /// Python runs the handlers of signals there alone.
  static bool is_main_thread() {
    const nb::object main = nb::module_::import_("threading").attr("main_thread")();
    return nb::cast<unsigned long>(main.attr("ident")) == PyThread_get_thread_ident();
  }
  static std::int32_t signal_raises(void* raised) {
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() == 0) return 0;
    *static_cast<bool*>(raised) = true;
    return 1;
  }

  std::shared_ptr<Holder> holder_;
  kiln_blobs* handle_;
};

}  // namespace

nb::object open_blobs(const std::shared_ptr<Holder>& holder, const std::string& space,
                      const std::string& compatibility, std::uint64_t budget, bool refuse_when_sealed,
                      bool behind) {
  kiln_blobs_options options{};
  options.struct_size = sizeof options;
  options.space = space.c_str(), options.compatibility = compatibility.c_str();
  options.budget_bytes = budget, options.refuse_when_sealed = refuse_when_sealed, options.behind = behind;
  kiln_blobs* out = nullptr;
  call(holder, [&] { return kiln_service_open_blobs(holder->service(), &options, &out); });
  return nb::cast(new Blobs(holder, out), nb::rv_policy::take_ownership);
}

void add_blobs(nb::module_& m) {
  nb::class_<Lease>(m, "Lease").def_prop_ro("held", &Lease::held).def("end", &Lease::end);
  nb::class_<Blobs>(m, "Blobs")
      .def("get", &Blobs::get, "key"_a)
      .def("put", &Blobs::put, "key"_a, "data"_a, "lease"_a.none() = nb::none())
      .def("lease", &Blobs::lease, "key"_a, "wait"_a)
      .def("flush", &Blobs::flush, "wait"_a)
      .def("list", &Blobs::list)
      .def("delete", &Blobs::remove, "key"_a)
      .def("identify", &Blobs::identify, "key"_a, "identity"_a);
}

}  // namespace kiln::python
