#include "runtime/launch/library.hpp"

#include <utility>

namespace kiln::runtime {

using namespace toolchain;

std::optional<Library> Library::load(const Driver& driver, const std::string& image,
                                     const WantedOfLibrary& wanted, const std::string& doing,
                                     std::string& refusal) {
  Driver::refuse_in_forked_child(doing);
  const RelaxedCapture relaxed(driver);
  const auto refused = [&](CUresult result) {
    switch (result) {
      case CUDA_ERROR_INVALID_IMAGE:
      case CUDA_ERROR_NO_BINARY_FOR_GPU:
      case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      case CUDA_ERROR_INVALID_SOURCE:
        refusal = driver.describe(result);
        return true;
      default:
        return false;
    }
  };
  CUlibrary handle = nullptr;
  const CUresult loaded =
      driver.cuLibraryLoadData(&handle, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (refused(loaded)) return std::nullopt;
  driver.check(loaded, "cuLibraryLoadData", doing);
  Library library(driver, handle);
  for (const std::string& name : wanted.kernels) {
    CUkernel kernel = nullptr;
    const CUresult found = driver.cuLibraryGetKernel(&kernel, handle, name.c_str());
    if (refused(found)) return std::nullopt;
    driver.check(found, "cuLibraryGetKernel", doing);
    CUfunction& function = library.functions_.emplace_back();
    const CUresult got = driver.cuKernelGetFunction(&function, kernel);
    if (refused(got)) return std::nullopt;  // lazy loading reports a bad image here
    driver.check(got, "cuKernelGetFunction", doing);
    if (driver.cuFuncLoad) driver.check(driver.cuFuncLoad(function), "cuFuncLoad", doing);
  }
  for (const std::string& name : wanted.globals) {
    Global& global = library.globals_.emplace_back();
    driver.check(driver.cuLibraryGetGlobal(&global.address, &global.bytes, handle, name.c_str()),
                 "cuLibraryGetGlobal", doing + ", variable '" + name + '\'');
  }
  Driver::saw_initialized();
  return library;
}

Library::Library(Library&& other) noexcept
    : driver_(other.driver_),
      process_(other.process_),
      library_(std::exchange(other.library_, nullptr)),
      functions_(std::move(other.functions_)),
      globals_(std::move(other.globals_)) {}

Library& Library::operator=(Library&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(process_, other.process_);
  std::swap(library_, other.library_);
  std::swap(functions_, other.functions_);
  std::swap(globals_, other.globals_);
  return *this;
}

Library::~Library() {
  if (library_ && process_ == base::process_generation())
    driver_->cuLibraryUnload(library_);  // errors are ignored: the driver or the context went first
}

}  // namespace kiln::runtime
