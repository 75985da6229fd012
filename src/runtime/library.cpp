#include "runtime/library.hpp"

#include <utility>

namespace kiln::runtime {

using namespace toolchain;

std::optional<Library> Library::load(const Driver& driver, const std::string& image,
                                     const std::string& lowered_name, const std::string& doing,
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
  CUkernel kernel = nullptr;
  const CUresult found = driver.cuLibraryGetKernel(&kernel, handle, lowered_name.c_str());
  if (refused(found)) return std::nullopt;
  driver.check(found, "cuLibraryGetKernel", doing);
  const CUresult got = driver.cuKernelGetFunction(&library.function_, kernel);
  if (refused(got)) return std::nullopt;  // lazy loading reports a bad image here
  driver.check(got, "cuKernelGetFunction", doing);
  if (driver.cuFuncLoad) driver.check(driver.cuFuncLoad(library.function_), "cuFuncLoad", doing);
  Driver::saw_initialized();
  return library;
}

Library::Library(Library&& other) noexcept
    : driver_(other.driver_),
      process_(other.process_),
      library_(std::exchange(other.library_, nullptr)),
      function_(std::exchange(other.function_, nullptr)) {}

Library& Library::operator=(Library&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(process_, other.process_);
  std::swap(library_, other.library_);
  std::swap(function_, other.function_);
  return *this;
}

Library::~Library() {
  if (library_ && process_ == base::process_generation())
    driver_->cuLibraryUnload(library_);  // any error: the driver or the context went first
}

}  // namespace kiln::runtime
