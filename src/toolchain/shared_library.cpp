#include "toolchain/shared_library.hpp"

#include <dlfcn.h>

namespace kiln::toolchain {

SharedLibrary SharedLibrary::open(const std::string& path, std::string& why) {
  SharedLibrary library;
  library.handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library.handle_) {
    const char* reason = ::dlerror();
    why = reason ? reason : "dlopen failed without a reason";
  }
  return library;
}

void* SharedLibrary::symbol(const char* name) const noexcept {
  return handle_ ? ::dlsym(handle_, name) : nullptr;
}

}  // namespace kiln::toolchain
