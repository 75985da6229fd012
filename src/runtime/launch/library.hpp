// Step 7: an image loaded into a context. Owner of the driver's CUlibrary.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/process.hpp"
#include "toolchain/driver.hpp"

namespace kiln::runtime {

/// The lowered names that are wanted of an image, with at least one kernel.
struct WantedOfLibrary {
  std::vector<std::string> kernels, globals;
};

/// Unloads on destruction, and tolerates a driver or context that is already gone. A copy in a forked child
/// unloads nothing, because its handles are the parent's.
class Library {
 public:
  /// Where a variable lies in the context that it was loaded in.
  struct Global {
    toolchain::CUdeviceptr address = 0;
    std::size_t bytes = 0;
  };

  /// Loads in relaxed capture mode and makes the functions resident, so that the first launch loads nothing.
  /// Returns nothing when the driver refuses the image for its content ("invalid image", "no binary").
  /// `refusal` then says why, and the caller may try another record.
  /// Throws Error(driver) for every other failure, and in a child forked after cuInit without asking the
  /// driver. Nothing stays loaded then.
  static std::optional<Library> load(const toolchain::Driver& driver, const std::string& image,
                                     const WantedOfLibrary& wanted, const std::string& doing,
                                     std::string& refusal);
  Library(Library&& other) noexcept;
  Library& operator=(Library&& other) noexcept;
  ~Library();

  /// The function of wanted.kernels[i].
  toolchain::CUfunction function(std::size_t i = 0) const noexcept { return functions_[i]; }
  /// The variables of wanted.globals, in order.
  const std::vector<Global>& globals() const noexcept { return globals_; }

 private:
  Library(const toolchain::Driver& driver, toolchain::CUlibrary library)
      : driver_(&driver), library_(library) {}
  const toolchain::Driver* driver_;
  std::uint64_t process_ = base::process_generation();
  toolchain::CUlibrary library_ = nullptr;
  std::vector<toolchain::CUfunction> functions_;
  std::vector<Global> globals_;
};

/// While it lives, this thread's driver calls do not invalidate a stream capture of another thread.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const toolchain::Driver& driver) noexcept
      : driver_(driver), exchanged_(driver_.cuThreadExchangeStreamCaptureMode(&mode_) == 0) {}
  ~RelaxedCapture() {
    if (exchanged_) driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const toolchain::Driver& driver_;
  int mode_ = toolchain::CU_STREAM_CAPTURE_MODE_RELAXED;
  const bool exchanged_;  ///< false: mode_ is not the thread's mode, and must not become it
};

}  // namespace kiln::runtime
