// A GPU architecture that code is compiled for: a compute capability, and how much of its instruction set the
// code may use.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::base {

/// The instructions that code for a compute capability may use. More of them mean fewer GPUs that run it.
/// Family and exact instructions exist from 9.0 on; before that, everything is base.
enum class Features {
  ptx,     ///< compute_90: no machine code. The driver translates it, for this and every later capability
  base,    ///< sm_100: runs on every GPU of the same major version with this minor version or a later one
  family,  ///< sm_100f: runs on the GPUs of one family, 10.0 and 10.3. From 10.0 on
  exact,   ///< sm_100a: runs on this compute capability alone. From 9.0 on
};

/// The word of manifests: "ptx", "base", "family" or "exact".
constexpr std::string_view to_string(Features features) noexcept {
  constexpr std::array<std::string_view, 4> kNames{"ptx", "base", "family", "exact"};
  return kNames[static_cast<std::size_t>(features)];
}

struct Arch {
  int number = 0;  ///< 90 for compute capability 9.0
  Features features = Features::base;

  constexpr Arch() = default;
  constexpr Arch(int of_number, Features of_features) : number(of_number), features(of_features) {}
  /// The arch that has all instructions of a compute capability.
  constexpr Arch(int of_number) : Arch(of_number, of_number >= 90 ? Features::exact : Features::base) {}

  /// Reads kiln's spellings. Throws Error(unsupported_arch) for anything else.
  ///   80, sm_80                    base: before 9.0 there is nothing else
  ///   90, sm_90, sm_90a, 100, ...  exact: from 9.0 on, a number alone means this
  ///   100f, sm_100f                family, from 10.0 on
  ///   100_base, sm_100_base        base, from 10.0 on
  ///   compute_90                   PTX
  static Arch parse(std::string_view text);
  static Arch of_capability(int major, int minor) noexcept { return Arch(major * 10 + minor); }

  /// kiln's spelling: "compute_80", "sm_80", "sm_90a", "sm_100_base", "sm_100f", "sm_100a".
  std::string name() const;
  /// The compiler's spelling: "sm_100" for a base target, and for PTX, which is the compiler's other answer.
  std::string compiler_name() const;

  /// True when the image of this arch runs on a device of compute capability `device`, such as 103. An image
  /// for Jetson Orin (8.7) runs there alone, and no other image does.
  bool runs_on(int device) const noexcept;
  /// The archs whose images run on a device of compute capability `device`, the best first: exact,
  /// family, base, PTX; of two with the same features, the one with more of the device's instructions.
  static std::vector<Arch> that_run_on(int device);

  // clang-tidy 14 takes the zero of a comparison for a null pointer. NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const Arch&, const Arch&) = default;
};

/// Limits of one SM.
struct SmLimits {
  static constexpr std::uint32_t kRegisters =
      64 * 1024;  ///< of an SM, and most of a block, on all archs so far

  int warps = 0, blocks = 0;
  std::uint32_t shared_bytes = 0;     ///< bytes of all blocks together, including shared_reserved of each
  std::uint32_t shared_opt_in = 0;    ///< largest size in bytes that one block may have
  std::uint32_t shared_reserved = 0;  ///< bytes that the system takes in each block
};
/// Nothing for an arch that the table does not know.
std::optional<SmLimits> sm_limits(Arch arch) noexcept;
/// For an unknown arch the limits of the newest known one of the same major version, else the smallest.
SmLimits sm_limits_or_guess(Arch arch) noexcept;

}  // namespace kiln::base
