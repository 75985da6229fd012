#include "runtime/launch/fault_words.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "templates/kiln/fault_words.h"

namespace kiln::runtime {

std::string reason_of(std::uint32_t code) {
  switch (code) {
    case FAULT_OTHER_KERNEL:
      return "the work list was made for another kernel, or was never written";
    case FAULT_OTHER_WORKERS:
      return "the work list was made for another number of workers";
    case FAULT_OTHER_HEADS:
      return "the work list was made for another number of kv heads";
    case FAULT_OTHER_WINDOW:
      return "the work list was made for another window_left or window_right";
    case FAULT_NO_LIST:
      return "the buffer holds no work list over which the device may write";
    case FAULT_LIMITS:
      return "the batch is beyond the limits that the work list's buffer was made for";
    case FAULT_LENGTHS:
      return "a length of the batch is negative, shrinks, or is more than its pages or rows hold";
    default:
      return "reason " + std::to_string(code) + " of the template";
  }
}

StreamOfItsOwn::StreamOfItsOwn(const toolchain::Driver& driver, const std::string& doing)
    : driver_(driver), relaxed_(driver) {
  constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
  driver_.check(driver_.cuStreamCreate(&stream_, kNonBlocking), "cuStreamCreate", doing);
}

StreamOfItsOwn::~StreamOfItsOwn() { driver_.cuStreamDestroy(stream_); }

FaultWords::FaultWords(const toolchain::Driver& driver, std::shared_ptr<const Library> library,
                       Library::Global words, bool traps, const std::string& doing)
    : driver_(driver), library_(std::move(library)), address_(words.address) {
  if (!traps) return;
  const RelaxedCapture relaxed(driver);
  const unsigned yes = 1;
  driver.check(driver.cuMemcpyHtoD(address_ + offsetof(DeviceFaultWords, traps), &yes, sizeof yes),
               "cuMemcpyHtoD", doing);
}

std::optional<Fault> FaultWords::take(toolchain::CUstream stream, const std::string& doing) {
  DeviceFaultWords now{};
  const std::lock_guard lock(mutex_);
  driver_.check(driver_.cuMemcpyDtoHAsync(&now, address_, sizeof now, stream), "cuMemcpyDtoHAsync", doing);
  driver_.check(driver_.cuStreamSynchronize(stream), "cuStreamSynchronize", doing);
  const std::uint32_t launches = now.launches - std::exchange(seen_, now.launches);
  if (launches == 0) return std::nullopt;
  return Fault{.launches = launches, .code = now.reason};
}

std::shared_ptr<FaultWords> fault_words_of(const toolchain::Driver& driver,
                                           const std::shared_ptr<const Library>& library,
                                           const std::vector<std::string>& globals, bool traps,
                                           const std::string& doing) {
  const auto found = std::find(globals.begin(), globals.end(), kDeviceFault);
  if (found == globals.end()) return nullptr;
  const Library::Global words = library->globals()[static_cast<std::size_t>(found - globals.begin())];
  if (words.bytes != sizeof(DeviceFaultWords)) return nullptr;  // another variable of this name
  return std::make_shared<FaultWords>(driver, library, words, traps, doing);
}

}  // namespace kiln::runtime
