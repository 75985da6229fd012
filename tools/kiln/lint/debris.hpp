// Parts of an image besides the code of its entry points.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln::cli {

struct Debris {
  std::uint64_t image_bytes = 0;
  std::uint64_t bytes = 0;  ///< bytes of the image outside its entry points' code, constants and notes
  std::uint64_t variables = 0, variable_bytes = 0;             ///< with names, symbols and addresses
  std::vector<std::pair<std::string, std::uint64_t>> origins;  ///< namespaces of the variables, most first
  std::uint64_t strings = 0;                                   ///< number of strings of printf and assert
  std::uint64_t debug_bytes = 0;                               ///< .debug_* and line tables
  std::uint64_t functions = 0, function_bytes = 0;             ///< functions that were not inlined
  std::string largest_function;                                ///< demangled
};

/// `entries` are lowered names. `wanted` are lowered names of variables that the manifest asks for. Throws
/// Error(io) when `image` is no image.
Debris debris_of(std::string_view image, const std::vector<std::string>& entries,
                 const std::vector<std::string>& wanted);

/// "981 variables with their names and addresses are 132 KiB (cuda::std 930, ...)"
std::string debris_text(const Debris& debris);

/// "cuda::std" for a mangled variable of cuda::std::__4::...; also "the global namespace" or "strings".
std::string origin_of_variable(const std::string& mangled);

inline constexpr std::uint64_t kMuchDebris = 100'000;  // bytes

}  // namespace kiln::cli
