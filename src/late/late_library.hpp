// A shared library that is loaded when the first of its functions is called.
//
// libkiln's code for the fleet's tier and its keys calls libsodium and libzstd like any other; here are
// functions of the same names, which libkiln has inside and nobody else sees. So a process without a tier
// neither loads these libraries (0.1 ms of each start) nor needs them. A static build has the archives and
// none of this.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <span>

namespace kiln::late {

/// Made by whoever comes first, once or by several at once: dlopen counts, and gives the same library. No
/// mutex, for a forked child.
class LateLibrary {
 public:
  constexpr explicit LateLibrary(std::span<const char* const> names) noexcept : names_(names) {}

  /// Null when there is no such library, or none with that function.
  template <class Function>
  Function find(std::atomic<void*>& slot, const char* name) noexcept {
    void* at = slot.load(std::memory_order_acquire);
    if (!at && open()) slot.store(at = ::dlsym(open(), name), std::memory_order_release);
    return reinterpret_cast<Function>(at);
  }

 private:
  void* open() noexcept {
    void* library = library_.load(std::memory_order_acquire);
    if (library || missing_.load(std::memory_order_relaxed)) return library;
    for (const char* name : names_)
      if (!library) library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    library_.store(library, std::memory_order_release);
    missing_.store(!library, std::memory_order_relaxed);
    return library;
  }

  const std::span<const char* const> names_;
  std::atomic<void*> library_{nullptr};
  std::atomic<bool> missing_{false};
};

}  // namespace kiln::late

/// A function of `library` that hands its arguments on, or returns `without` when there is none.
#define KILN_LATE(library, result, name, parameters, arguments, without) \
  extern "C" result name parameters {                                    \
    static constinit std::atomic<void*> slot{nullptr};                   \
    const auto function = library.find<decltype(&::name)>(slot, #name);  \
    return function ? function arguments : without;                      \
  }
