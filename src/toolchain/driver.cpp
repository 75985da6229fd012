#include "toolchain/driver.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "base/lazy.hpp"
#include "base/process.hpp"
#include "kiln/error.hpp"
#include "toolchain/driver_entries.hpp"
#include "toolchain/shared_library.hpp"

namespace kiln::toolchain {
namespace {

constexpr int kOldestVersion = 12000;

struct Function {
  const char* name;
  int version;
  bool required;
  std::size_t offset;  // of the pointer in DriverFunctions
};
#define KILN_REQUIRED(name, version) {#name, version, true, offsetof(DriverFunctions, name)},
#define KILN_OPTIONAL(name, version) {#name, version, false, offsetof(DriverFunctions, name)},
constexpr Function kFunctions[] = {KILN_DRIVER_FUNCTIONS(KILN_REQUIRED, KILN_OPTIONAL)};
#undef KILN_REQUIRED
#undef KILN_OPTIONAL
static_assert(std::size(kFunctions) * sizeof(void*) == sizeof(DriverFunctions),
              "an entry of driver.hpp is not listed");

using GetProcAddress = CUresult (*)(const char*, void**, int version, std::uint64_t flags, int* status);
// CU_GET_PROC_ADDRESS_LEGACY_STREAM: stream 0 is the legacy default stream.
constexpr std::uint64_t kLegacyStream = 1;

struct Loaded {
  Driver driver{};
  std::string error;
  bool usable = false;

  Loaded() noexcept {
    try {
      error = load();
      usable = error.empty();
    } catch (const std::exception& e) {
      error = e.what();  // out of memory
    }
  }

 private:
  /// Returns the error, or "".
  std::string load() {
    const char* named = std::getenv("KILN_LIBCUDA");
    const std::string path = named && *named ? named : "libcuda.so.1";
    std::string why;
    const SharedLibrary library = SharedLibrary::open(path, why);
    if (!library) return "no CUDA driver: " + why;
    GetProcAddress get = nullptr;
    void* symbol = library.symbol("cuGetProcAddress_v2");
    std::memcpy(&get, &symbol, sizeof get);
    if (!get) return "the CUDA driver '" + path + "' is older than 12.0: it has no cuGetProcAddress_v2";

    std::string missing;
    for (const Function& wanted : kFunctions) {
      void* function = nullptr;
      int status = 0;
      if (get(wanted.name, &function, wanted.version, kLegacyStream, &status) != CUDA_SUCCESS)
        function = nullptr;
      std::memcpy(reinterpret_cast<char*>(static_cast<DriverFunctions*>(&driver)) + wanted.offset, &function,
                  sizeof function);
      if (!function && wanted.required) missing += std::string(missing.empty() ? "" : ", ") + wanted.name;
    }
    int version = 0;
    if (driver.cuDriverGetVersion) driver.cuDriverGetVersion(&version);
    if (version >= kOldestVersion && missing.empty()) return "";
    return "the CUDA driver '" + path + "' (" + std::to_string(version / 1000) + '.' +
           std::to_string(version % 1000 / 10) +
           ") is not usable: " + (missing.empty() ? "12.0 or newer is needed" : "it lacks " + missing);
  }
};

/// Never destroyed: objects that unload at exit still call through it.
union Forever {
  base::Lazy<Loaded> value;
  constexpr Forever() : value() {}
  ~Forever() {}
};
constinit Forever g_loaded;

const Loaded& loaded() noexcept {
  return g_loaded.value.get([] { return Loaded(); });
}

/// The process in which a call that needs cuInit first succeeded; 0: there was none.
constinit std::atomic<std::uint64_t> initialized_in{0};

constexpr const char* kForked =
    "CUDA cannot be used in a child process forked after cuInit: fork before it, or start the child with "
    "posix_spawn or exec";

/// Advice about an error that the driver explains in only a few words; "" when there is none.
const char* advice(CUresult result) {
  switch (result) {
    case CUDA_ERROR_NOT_INITIALIZED:
      if (Driver::forked_after_init()) return kForked;
      return "either cuInit was not called in this process, or its parent had called it before the fork, "
             "after which a child cannot use CUDA: fork earlier, or start the child with posix_spawn or exec";
    case CUDA_ERROR_DEINITIALIZED:
      return "the driver has shut down because the process is exiting: stop the threads that use CUDA first";
    case CUDA_ERROR_INVALID_CONTEXT:
      return "this thread has no current context, or its current context is not the one in which the kernel "
             "or template was opened: make that one current (cuCtxSetCurrent, cudaSetDevice)";
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
      return "the context current in this thread was destroyed: make a live context current and open "
             "the templates there again";
    case CUDA_ERROR_INVALID_HANDLE:
      return "the stream or the kernel belongs to another context than the current one, or to one that was "
             "destroyed";
    default:
      return "";
  }
}

}  // namespace

const Driver* Driver::get() noexcept { return loaded().usable ? &loaded().driver : nullptr; }

const std::string& Driver::load_error() noexcept { return loaded().error; }

std::string Driver::describe(CUresult result) const {
  const char *name = nullptr, *text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) return "CUresult " + std::to_string(result);
  std::string out = std::string(name) + " (" + std::to_string(result) + ')';
  if (cuGetErrorString(result, &text) == CUDA_SUCCESS && text) out += std::string(": ") + text;
  if (const char* what_to_do = advice(result); *what_to_do) out += std::string(" (") + what_to_do + ')';
  return out;
}

void Driver::check(CUresult result, const char* call, const std::string& doing) const {
  if (result == CUDA_SUCCESS) return;
  throw Error(Errc::driver, call + (doing.empty() ? "" : " while " + doing) + ": " + describe(result));
}

void Driver::saw_initialized() noexcept {
  std::uint64_t none = 0;
  initialized_in.compare_exchange_strong(none, base::process_generation(), std::memory_order_relaxed);
}

bool Driver::forked_after_init() noexcept {
  const std::uint64_t seen = initialized_in.load(std::memory_order_relaxed);
  return seen != 0 && seen != base::process_generation();
}

void Driver::refuse_in_forked_child(const std::string& doing) {
  if (forked_after_init()) throw Error(Errc::driver, doing + ": CUDA_ERROR_NOT_INITIALIZED (3): " + kForked);
}

DeviceFacts device_facts(const Driver& driver, int ordinal) {
  const std::string doing = "asking about device " + std::to_string(ordinal);
  CUdevice device = 0;
  driver.check(driver.cuDeviceGet(&device, ordinal), "cuDeviceGet", doing);
  const auto attribute = [&](int which) {
    int value = 0;
    driver.check(driver.cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute", doing);
    return value;
  };
  Driver::saw_initialized();
  char name[256] = {};
  driver.check(driver.cuDeviceGetName(name, sizeof name - 1, device), "cuDeviceGetName", doing);
  DeviceFacts facts;
  facts.ordinal = ordinal;
  facts.name = name;
  facts.arch = base::Arch::of_capability(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                                         attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  facts.sms = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  facts.smem_optin = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  facts.l2 = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  return facts;
}

}  // namespace kiln::toolchain
