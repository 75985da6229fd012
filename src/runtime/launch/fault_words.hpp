// Reads what a loaded image says of launches that could not do their work (templates/kiln/fault.cuh).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/launch/library.hpp"

namespace kiln::runtime {

/// The name of the [[global]] that has the words.
inline constexpr std::string_view kDeviceFault = "device_fault";

/// Launches of one kernel that have failed since they were last asked for.
struct Fault {
  std::uint32_t launches = 0;
  std::uint32_t code = 0;  ///< FaultReason of the last of them, or a number of the template's own
};

/// A fault, and the kernel that it is of.
struct KernelFault {
  std::string template_name, specialization;
  int device = 0;
  Fault fault;
};

/// A stream that waits for no other, so that reading neither waits for running kernels nor touches a capture.
class StreamOfItsOwn {
 public:
  StreamOfItsOwn(const toolchain::Driver& driver, const std::string& doing);
  ~StreamOfItsOwn();
  StreamOfItsOwn(const StreamOfItsOwn&) = delete;
  StreamOfItsOwn& operator=(const StreamOfItsOwn&) = delete;
  toolchain::CUstream get() const noexcept { return stream_; }

 private:
  const toolchain::Driver& driver_;
  const RelaxedCapture relaxed_;
  toolchain::CUstream stream_ = nullptr;
};

/// The meaning of a code, such as "the work list was made for another kernel".
std::string reason_of(std::uint32_t code);

/// Thread-safe. The device only counts up, so the host never writes the count, and no fault is lost between reading
/// and clearing: what was read before is remembered here.
class FaultWords {
 public:
  /// `words`: the variable in the library's context. With `traps` such launches trap, which ends the context.
  /// Throws Error(driver).
  FaultWords(const toolchain::Driver& driver, std::shared_ptr<const Library> library, Library::Global words,
             bool traps, const std::string& doing);

  /// The faults of launches that had ended, since the last call. `stream` has no other work.
  /// REQUIRES: the library's context is current. Throws Error(driver).
  std::optional<Fault> take(toolchain::CUstream stream, const std::string& doing);

 private:
  const toolchain::Driver& driver_;
  const std::shared_ptr<const Library> library_;  ///< keeps the variable
  const toolchain::CUdeviceptr address_;
  std::mutex mutex_;
  std::uint32_t seen_ = 0;
};

/// The words of an image with these variables; null where it has none.
std::shared_ptr<FaultWords> fault_words_of(const toolchain::Driver& driver,
                                           const std::shared_ptr<const Library>& library,
                                           const std::vector<std::string>& globals, bool traps,
                                           const std::string& doing);

}  // namespace kiln::runtime
