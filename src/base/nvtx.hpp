// Ranges that NVIDIA's tools show (Nsight Systems, Nsight Compute): NVTX, in the domain "kiln".
//
// Built without the nvtx3 headers all ranges are empty; CMake says which. A forked child makes none when its
// parent did: what the tool holds for it may be locked, or the parent's.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>

namespace kiln::base {

/// From its construction to its destruction, both in one thread. Not for the path of a ready hit: without a
/// tool it costs a load and a branch, with one the tool's call.
class NvtxRange {
 public:
  /// `name()` gives the text, "kiln compile rms_norm T=bf16 H=4096"; it is only called when a tool listens.
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

  /// Whether this build has the headers.
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
  std::uint64_t generation_ = 0;  ///< of the process that has pushed it; 0: nobody has
};

}  // namespace kiln::base
