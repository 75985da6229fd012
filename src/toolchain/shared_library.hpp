// dlopen for libraries that stay for the life of the process (libcuda, libnvrtc).
#pragma once

#include <string>

namespace kiln::toolchain {

class SharedLibrary {
 public:
  SharedLibrary() = default;
  /// RTLD_NOW | RTLD_LOCAL. On failure the object is false and `why` holds the loader's words.
  static SharedLibrary open(const std::string& path, std::string& why);
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  /// Null when absent.
  void* symbol(const char* name) const noexcept;

 private:
  void* handle_ = nullptr;
};

}  // namespace kiln::toolchain
