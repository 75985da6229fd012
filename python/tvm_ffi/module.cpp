// The shared object that kiln.tvm_ffi.export() copies. tvm-ffi loads a copy as a module, and finds a function by its
// symbol __tvm_ffi_NAME. A copy needs libkiln and tvm-ffi at run time, and neither Python nor a compiler.
//
// export() writes into a copy: the names of symbols, the table kiln_tvm_ffi_slots, and the hash table of symbols.
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <stdexcept>

#include "call.hpp"
#include "driver.hpp"

namespace {

constexpr int kSlots = 48;

/// The table that export() fills in. Its texts end with a zero byte.
struct Table {
  char magic[32];
  char library[480];  ///< libkiln's path: absolute, relative to this file, or empty
  /// For each function its signature. A text that begins with '!' is an error, which each call of the function raises.
  char functions[kSlots][512];
};

}  // namespace

// No static: the compiler may not take its texts for constants.
extern "C" Table kiln_tvm_ffi_slots;
Table kiln_tvm_ffi_slots = {"kiln tvm-ffi module, format 1", "", {}};

namespace kiln::tvm_ffi {
namespace {

/// The functions of libkiln, and the service that all modules of a process share.
struct Kiln {
  Library library;
  decltype(&kiln_service_create) create = nullptr;
  decltype(&kiln_service_open_operator) open = nullptr;
  decltype(&kiln_service_describe_operators) describe = nullptr;
  decltype(&kiln_text_release) release = nullptr;
  kiln_service* service = nullptr;
};

/// KILN_LIBRARY, a libkiln that the process has, the path of the table, and the loader's search, in this order.
void* open_library(std::string& tried) {
  const auto attempt = [&](const std::string& path, int flags) {
    void* const found = path.empty() ? nullptr : dlopen(path.c_str(), flags);
    if (!found && !path.empty() && !(flags & RTLD_NOLOAD)) (tried += "\n  ") += dlerror();
    return found;
  };
  if (const char* const named = std::getenv("KILN_LIBRARY"); named && *named)
    return attempt(named, RTLD_NOW | RTLD_LOCAL);
  if (void* const loaded = attempt("libkiln.so.0", RTLD_NOW | RTLD_NOLOAD)) return loaded;
  std::string path = kiln_tvm_ffi_slots.library;
  Dl_info self{};
  if (!path.empty() && path[0] != '/' && dladdr(&kiln_tvm_ffi_slots, &self) != 0) {
    const std::string file = self.dli_fname;
    path = file.substr(0, file.rfind('/') + 1) + path;
  }
  void* const found = attempt(path, RTLD_NOW | RTLD_LOCAL);
  return found ? found : attempt("libkiln.so.0", RTLD_NOW | RTLD_LOCAL);
}

/// Another module's service by tvm-ffi's global function kiln.service, or null.
kiln_service* shared_service(const Bytes& name) noexcept {
  void* function = nullptr;
  Value result{};
  if (runtime()->global(&name, &function) != 0 || !function) return nullptr;
  const int status = runtime()->call(function, nullptr, 0, &result);
  runtime()->release(function);
  return status == 0 ? static_cast<kiln_service*>(result.pointer) : nullptr;
}

int return_service(void* self, const Value*, std::int32_t, Value* result) noexcept {
  result->type = kOpaquePointer, result->small_size = 0;
  return result->pointer = self, 0;
}

/// Throws std::runtime_error. The service lives as long as the process.
Kiln open_kiln() {
  Kiln out;
  std::string tried;
  void* const library = open_library(tried);
  if (!library)
    throw std::runtime_error(
        "kiln's library does not load. Name libkiln.so.0 in KILN_LIBRARY, or put it where the loader "
        "searches." +
        tried);
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function) throw std::runtime_error(std::string("libkiln is too old: it has no ") + name);
  };
  find(out.library.call, "kiln_operator_call"), find(out.library.last_error, "kiln_last_error");
  find(out.create, "kiln_service_create"), find(out.open, "kiln_service_open_operator");
  find(out.describe, "kiln_service_describe_operators"), find(out.release, "kiln_text_release");
  const Bytes name{"kiln.service", 12};
  if ((out.service = shared_service(name))) return out;
  if (out.create(nullptr, &out.service) != KILN_OK)
    throw std::runtime_error(out.library.last_error()->message);
  void* function = nullptr;
  if (runtime()->make_function(out.service, return_service, nullptr, &function) == 0) {
    runtime()->set_global(&name, function, 1);
    runtime()->release(function);
  }
  return out;
}

/// A function of the module. It lives as long as the process.
class ModuleFunction final : public Function {
 public:
  ModuleFunction(Signature signature, const Kiln& kiln)
      : Function(std::move(signature), kiln.library), kiln_(kiln) {
    kiln_text text{};
    text.struct_size = sizeof text;
    if (kiln.describe(kiln.service, this->signature().name.c_str(), &text) != KILN_OK)
      throw std::runtime_error(kiln.library.last_error()->message);
    const bool matches = this->signature().matches(text.data);
    kiln.release(&text);
    if (!matches)
      throw std::runtime_error(
          this->signature().operator_ +
          ": the operator has other operands than when the module was exported. Export again.");
  }

 private:
  kiln_operator* begin(int device, void**) noexcept override {
    if (device < 0 || device >= kDevices)
      return raise("ValueError", "kiln supports device numbers below 64"), nullptr;
    kiln_operator* known = bound_[device].load(std::memory_order_acquire);
    if (known) return known;
    if (kiln_.open(kiln_.service, signature().name.c_str(), device, nullptr, &known) != KILN_OK)
      return raise("RuntimeError", kiln_.library.last_error()->message), nullptr;
    bound_[device].store(known, std::memory_order_release);
    return known;
  }

  const Kiln& kiln_;
  std::atomic<kiln_operator*> bound_[kDevices] = {};
};

ModuleFunction* open_slot(int slot) {
  static std::mutex lock;
  static std::atomic<ModuleFunction*> known[kSlots];
  if (ModuleFunction* const found = known[slot].load(std::memory_order_acquire)) return found;
  const std::lock_guard guard(lock);
  if (ModuleFunction* const found = known[slot].load(std::memory_order_acquire)) return found;
  static const Kiln kiln = open_kiln();  // made again by the next call when it throws
  auto* const made = new ModuleFunction(Signature::parse(kiln_tvm_ffi_slots.functions[slot]), kiln);
  known[slot].store(made, std::memory_order_release);
  return made;
}

int call_slot(int slot, const Value* arguments, std::int32_t count, Value* result) noexcept {
  const char* const text = kiln_tvm_ffi_slots.functions[slot];
  if (text[0] == '!') return raise("RuntimeError", text + 1);
  if (!runtime()) return -1;
  try {
    return open_slot(slot)->call(arguments, count, result);
  } catch (const std::exception& error) {
    return raise("RuntimeError", error.what());
  }
}

}  // namespace
}  // namespace kiln::tvm_ffi

// The symbol of slot N, whose name export() replaces. A name has at most 95 bytes with __tvm_ffi_.
#define KILN_SLOT(n)                                                                                  \
  extern "C" __attribute__((visibility("default"), used)) int kiln_slot_##n(                          \
      void*, const kiln::tvm_ffi::Value* arguments, std::int32_t count,                               \
      kiln::tvm_ffi::Value*                                                                           \
          result) __asm__("__tvm_ffi_kiln_slot_" #n                                                   \
                          "_______________________________________________________________________"); \
  int kiln_slot_##n(void*, const kiln::tvm_ffi::Value* arguments, std::int32_t count,                 \
                    kiln::tvm_ffi::Value* result) {                                                   \
    return kiln::tvm_ffi::call_slot(1##n - 100, arguments, count, result);                            \
  }
#define KILN_EIGHT_SLOTS(d) \
  KILN_SLOT(d##0)           \
  KILN_SLOT(d##1)           \
  KILN_SLOT(d##2)           \
  KILN_SLOT(d##3)           \
  KILN_SLOT(d##4)           \
  KILN_SLOT(d##5)           \
  KILN_SLOT(d##6)           \
  KILN_SLOT(d##7)
#define KILN_TEN_SLOTS(d) \
  KILN_EIGHT_SLOTS(d)     \
  KILN_SLOT(d##8)         \
  KILN_SLOT(d##9)
KILN_TEN_SLOTS(0)
KILN_TEN_SLOTS(1)
KILN_TEN_SLOTS(2)
KILN_TEN_SLOTS(3)
KILN_EIGHT_SLOTS(4)
