// Ranges that NVIDIA's tools show (Nsight Systems, Nsight Compute): NVTX, in the domain "kiln".
//
// In a build without the nvtx3 headers all ranges are empty; CMake reports which kind of build it
// is. A forked child makes no ranges when its parent made some: the tool's state may be locked, or
// belong to the parent.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>

namespace kiln::base {

/// A range from construction to destruction, which must be in one thread. Do not use it on the path of a
/// ready hit. It costs a load and a branch without a tool, and the tool's call with one.
class NvtxRange {
 public:
  /// `name()` returns the text, such as "kiln compile rms_norm T=bf16 H=4096". It is only
  /// called when a tool listens.
  template <class Name>
  requires std::is_invocable_r_v<std::string, const Name&>
  explicit NvtxRange(const Name& name) noexcept {
    if (!listened_to()) return;
    try {
      push(name());
    } catch (...) {  // out of memory: no range
    }
  }
  ~NvtxRange() {
    if (generation_ != 0) pop();
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

  /// True when this build has the nvtx3 headers.
  static bool is_built() noexcept;

 private:
  enum class Tool : std::uint8_t { not_asked, being_asked, absent, listens };
  static bool listened_to() noexcept {
    const Tool now = tool_.load(std::memory_order_acquire);
    if (now == Tool::absent) [[likely]]
      return false;
    return now == Tool::listens || ask();
  }
  static bool ask() noexcept;
  void push(const std::string& name) noexcept;
  void pop() noexcept;

  static std::atomic<Tool> tool_;
  std::uint64_t generation_ = 0;  ///< process that pushed the range; 0: no range was pushed
};

}  // namespace kiln::base
