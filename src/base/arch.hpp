// A GPU architecture as kiln names it: the compute capability, with `a` from 9.0 on.
#pragma once

#include <compare>
#include <string>
#include <string_view>

namespace kiln::base {

struct Arch {
  int number = 0;  ///< 90 for compute capability 9.0

  /// "90", "sm_90" and "sm_90a" mean the same. Throws Error(unsupported_arch) for anything else.
  static Arch parse(std::string_view text);
  static Arch of_capability(int major, int minor) noexcept { return {major * 10 + minor}; }

  /// "sm_80", "sm_90a".
  std::string name() const { return "sm_" + std::to_string(number) + (number >= 90 ? "a" : ""); }
  // clang-tidy 14 takes the zero of a comparison for a null pointer. NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const Arch&, const Arch&) = default;
};

}  // namespace kiln::base
