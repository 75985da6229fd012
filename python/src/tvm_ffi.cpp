// kiln.tvm_ffi.function(): an operator as a function object of tvm-ffi, on the service of this process.
#include <nanobind/stl/string.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>

#include "../tvm_ffi/call.hpp"
#include "operator_type.hpp"

namespace nb = nanobind;

namespace kiln::python {
namespace {

/// An operator on each device: resolve(device) gives it when it is needed first, and again after its service was
/// closed or forgotten. tvm-ffi owns the object, and calls it without the GIL.
class ServiceFunction final : public tvm_ffi::Function {
 public:
  ServiceFunction(tvm_ffi::Signature signature, nb::object resolve)
      : Function(std::move(signature), {kiln_operator_call, kiln_last_error}), resolve_(std::move(resolve)) {
    const std::lock_guard guard(lock());
    living().insert(this);
  }
  ~ServiceFunction() override {
    {
      const std::lock_guard guard(lock());
      living().erase(this);
    }
    const nb::gil_scoped_acquire gil;
    resolve_.reset();
    for (nb::object& one : kept_) one.reset();
  }

  static void forget() noexcept {
    const std::lock_guard guard(lock());
    for (ServiceFunction* const one : living())
      for (std::atomic<Bound*>& bound : one->bound_) bound.store(nullptr, std::memory_order_release);
  }

 private:
  static std::mutex& lock() noexcept {
    static std::mutex one;
    return one;
  }
  static std::set<ServiceFunction*>& living() {
    static auto* const all =
        new std::set<ServiceFunction*>;  // never released: functions may outlive the module
    return *all;
  }

  kiln_operator* begin(int device, void** lease) noexcept override {
    if (device < 0 || device >= kDevices)
      return tvm_ffi::raise("ValueError", "kiln supports device numbers below 64"), nullptr;
    for (int attempt = 0; attempt < 3; ++attempt) {
      Bound* known = bound_[device].load(std::memory_order_acquire);
      if (!known && !(known = resolve(device))) return nullptr;
      if (known->holder->enter()) return *lease = known->holder.get(), known->handle;
      bound_[device].compare_exchange_strong(known, nullptr);
    }
    return tvm_ffi::raise("RuntimeError", signature().operator_ + ": the kiln.Service was closed"), nullptr;
  }
  void end(void* lease) noexcept override { static_cast<Holder*>(lease)->leave(); }

  /// Null with a raised error.
  Bound* resolve(int device) noexcept {
    const nb::gil_scoped_acquire gil;
    try {
      nb::object capsule = resolve_(device);
      auto* const made = static_cast<Bound*>(PyCapsule_GetPointer(capsule.ptr(), "kiln.operator"));
      if (!made) throw nb::python_error();
      kept_.push_back(std::move(capsule));
      bound_[device].store(made, std::memory_order_release);
      return made;
    } catch (nb::python_error& error) {
      const std::string text = nb::cast<std::string>(nb::str(error.value()));
      return tvm_ffi::raise("RuntimeError", text), nullptr;
    }
  }

  nb::object resolve_;
  std::vector<nb::object> kept_;  ///< capsules of operators that a call may still use; guarded by the GIL
  std::atomic<Bound*> bound_[kDevices] = {};
};

int call(void* self, const tvm_ffi::Value* arguments, std::int32_t count, tvm_ffi::Value* result) noexcept {
  return static_cast<ServiceFunction*>(self)->call(arguments, count, result);
}

void destroy(void* self) noexcept {
  if (Py_IsInitialized()) delete static_cast<ServiceFunction*>(self);
}

/// A safe call: from the address of a ServiceFunction, which it owns from then on, to tvm-ffi's function object.
int wrap(void*, const tvm_ffi::Value* arguments, std::int32_t, tvm_ffi::Value* result) noexcept {
  const tvm_ffi::Runtime* const functions = tvm_ffi::runtime();
  auto* const self = static_cast<ServiceFunction*>(reinterpret_cast<void*>(arguments[0].integer));
  void* made = nullptr;
  if (!functions || functions->make_function(self, call, destroy, &made) != 0) return -1;
  result->type = tvm_ffi::kFunction, result->small_size = 0;
  return result->object = static_cast<tvm_ffi::Object*>(made), 0;
}

std::intptr_t make(const std::string& signature, nb::object resolve) {
  if (!tvm_ffi::runtime()) throw std::runtime_error("this process has no apache-tvm-ffi that kiln can call");
  auto* const made = new ServiceFunction(tvm_ffi::Signature::parse(signature), std::move(resolve));
  return reinterpret_cast<std::intptr_t>(made);
}

}  // namespace

void add_tvm_ffi_functions(nb::module_& module) {
  module.def("tvm_ffi_function", &make, nb::arg("signature"), nb::arg("resolve"),
             "The address of a new function, which tvm_ffi_wrap takes.");
  module.def("tvm_ffi_forget", &ServiceFunction::forget, "Asks resolve() of every function again.");
  module.attr("tvm_ffi_wrap") = reinterpret_cast<std::intptr_t>(&wrap);
}

}  // namespace kiln::python
