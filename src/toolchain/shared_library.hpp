// dlopen for libraries that stay loaded until the process ends (libcuda, libnvrtc).
#pragma once

#include <string>

namespace kiln::toolchain {

class SharedLibrary {
 public:
  SharedLibrary() = default;
  /// Opens with RTLD_NOW | RTLD_LOCAL. On failure the object is false and `why` has the loader's message.
  static SharedLibrary open(const std::string& path, std::string& why);
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  /// Null when there is no such symbol.
  void* symbol(const char* name) const noexcept;

 private:
  void* handle_ = nullptr;
};

}  // namespace kiln::toolchain
