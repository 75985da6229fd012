// What the parts of a loaded kernel have in common.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "compile/key/facts.hpp"
#include "kiln/error.hpp"
#include "runtime/launch/launch_recipe.hpp"

namespace kiln::runtime {

/// Of an entry point's parameters, derives, arguments, run-time values and exports; checked when a template
/// is opened.
inline constexpr int kMaxSlots = 256;

/// A launch whose arguments are converted and checked and whose geometry is known. Large, and written only
/// where a launch needs it.
struct PreparedLaunch {
  std::array<std::uint64_t, source::kMaxArguments> storage;  ///< of arguments that were converted
  std::array<void*, source::kMaxArguments> parameters;
  std::array<std::int64_t, kMaxSlots> slots;  ///< those that the recipe's expressions read
  Geometry config;
};

/// One entry point of one image on one device. Immutable; what it refers to outlives it.
struct KernelDescription {
  const source::Manifest& manifest;  ///< of this entry point, on this arch
  const source::LaunchSpec& spec;
  const compile::EntryFacts& facts;
  const std::string name;  ///< for messages: the specialisation, and the entry point where there are several
  const LaunchRecipe recipe;

  [[noreturn]] void fail(Errc code, const std::string& what) const { throw Error(code, name + ": " + what); }
};

}  // namespace kiln::runtime
