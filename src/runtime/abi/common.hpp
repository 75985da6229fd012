// Helpers of the functions of the C ABI: errors kept per thread, structs of any caller's size.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "kiln/error.hpp"
#include "kiln/kiln.h"
#include "runtime/service/preparation.hpp"
#include "runtime/service/service.hpp"

struct kiln_service : kiln::runtime::Service {
  using Service::Service;
};
struct kiln_future {
  kiln::runtime::KernelFuture result;
  std::uint64_t generation = kiln::base::process_generation();
};
struct kiln_preparation {
  std::shared_ptr<kiln::runtime::Preparation> work;
};

namespace kiln::runtime::c_api {

/// Keeps the current exception as this thread's last error, and returns its status.
kiln_status keep_current_exception() noexcept;

/// Runs a function's body. No exception leaves it.
template <class Body>
kiln_status guarded(Body&& body) noexcept {
  try {
    body();
    return KILN_OK;
  } catch (...) {
    return keep_current_exception();
  }
}

inline void require(bool condition, const char* what) {
  if (!condition) throw Error(Errc::invalid_argument, what);
}

/// Copies a caller's struct of an older or newer size into ours. Fields that it lacks are zero.
template <class T>
T sized(const T* in) {
  T out{};
  if (in) {
    require(in->struct_size >= sizeof(std::size_t), "struct_size is not set");
    std::memcpy(&out, in, std::min(in->struct_size, sizeof out));
  }
  out.struct_size = sizeof out;
  return out;
}

/// Checks an output struct before anything is made for it.
template <class T>
void require_sized(const T* out, std::size_t least = sizeof(std::size_t)) {
  require(out && out->struct_size >= least, "struct_size is not set, or out is null");
}

template <class T>
void fill_sized(T* out, T value) {
  require_sized(out);
  const std::size_t size = std::min(out->struct_size, sizeof value);
  value.struct_size = out->struct_size;
  std::memcpy(out, &value, size);
}

/// The object behind kiln_text.owner, which kiln_text_release() deletes.
using TextOwner = std::shared_ptr<const void>;

/// Gives bytes to the caller, which keeps their owner until it releases them.
inline void give_bytes(kiln_text* out, TextOwner owner, std::string_view bytes) {
  require_sized(out, sizeof *out);
  auto owned = std::make_unique<TextOwner>(std::move(owner));
  fill_sized(out, kiln_text{sizeof(kiln_text), bytes.data(), bytes.size(), owned.get()});
  static_cast<void>(owned.release());  // the caller's now
}

/// Gives the text that `make()` returns to the caller.
template <class Make>
void give_text(kiln_text* out, const Make& make) {
  require_sized(out, sizeof *out);  // a shorter one could not be released
  const auto text = std::make_shared<const std::string>(make());
  give_bytes(out, text, {text->c_str(), text->size()});
}

inline std::string text(const char* s) { return s ? s : ""; }

/// A deadline `seconds` from now. Negative seconds have passed already; more than 1e9 s are no deadline.
inline base::Deadline deadline_after(double seconds) {
  require(!std::isnan(seconds), "a number of seconds is NaN");
  if (seconds > 1e9) return base::Deadline::never();
  return base::Deadline::after(std::chrono::duration_cast<base::Clock::duration>(
      std::chrono::duration<double>(std::max(seconds, 0.0))));
}
/// A deadline where 0 seconds means none.
inline base::Deadline deadline_in(double seconds) {
  return seconds == 0 ? base::Deadline::never() : deadline_after(seconds);
}
/// A wait where negative seconds mean no limit.
inline base::Deadline wait_of(double seconds) {
  return seconds < 0 ? base::Deadline::never() : deadline_after(seconds);
}

inline Service& of(kiln_service* service) {
  require(service != nullptr, "kiln_service is null");
  return *service;
}
inline Scope& of(kiln_scope* scope) {
  require(scope != nullptr, "kiln_scope is null");
  return *reinterpret_cast<Scope*>(scope);
}
inline KernelTemplate& of(kiln_template* t) {
  require(t != nullptr, "kiln_template is null");
  return *reinterpret_cast<KernelTemplate*>(t);
}
inline const LoadedKernel& of(const kiln_kernel* kernel) {
  require(kernel != nullptr, "kiln_kernel is null");
  return *reinterpret_cast<const LoadedKernel*>(kernel);
}
inline const KernelFamily& of(const kiln_family* family) {
  require(family != nullptr, "kiln_family is null");
  return *reinterpret_cast<const KernelFamily*>(family);
}
inline const kiln_family* handle_of(const KernelFamily& family) {
  return reinterpret_cast<const kiln_family*>(&family);
}
inline kiln_template* handle_of(KernelTemplate& t) { return reinterpret_cast<kiln_template*>(&t); }
inline const kiln_kernel* handle_of(const LoadedKernel& k) {
  return reinterpret_cast<const kiln_kernel*>(&k);
}

}  // namespace kiln::runtime::c_api
