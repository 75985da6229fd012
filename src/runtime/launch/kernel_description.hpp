// The description that the parts of a loaded kernel share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "compile/key/facts.hpp"
#include "kiln/error.hpp"
#include "runtime/launch/recipe.hpp"

namespace kiln::runtime {

/// The most parameters, derives, arguments, run-time values and exports that an entry point may have
/// together. Checked when a template is opened.
inline constexpr int kMaxSlots = 256;

/// A launch whose arguments are converted and checked, and whose geometry is known. It is large, and is
/// written only where a launch needs it.
struct PreparedLaunch {
  std::array<std::uint64_t, source::kMaxArguments> storage;  ///< converted and computed arguments
  std::array<void*, source::kMaxArguments> parameters;       ///< the call's arguments
  std::array<std::int64_t, kMaxSlots> slots;  ///< set only where the recipe's expressions read them
  Geometry config;
  void** passed;  ///< what the driver gets: `parameters`, or `replaced`
  std::array<void*, source::kMaxArguments + source::kMaxTensorMaps + source::kMaxConstants> replaced;
  std::array<std::uint64_t, source::kMaxConstants>
      constants;  ///< set only where they differ from call to call
  std::array<std::array<std::uint64_t, source::kTensorMapBytes / 8>, source::kMaxTensorMaps> maps;
  std::unique_ptr<std::byte[]> structs;  ///< copies of structs that hold tensor maps
};

/// One entry point of one image on one device. Immutable. Whatever it refers to must outlive it.
struct KernelDescription {
  const source::Manifest& manifest;  ///< manifest of this entry point, on this arch
  const source::LaunchSpec& spec;
  const compile::EntryFacts& facts;
  const std::string name;  ///< for messages: the specialisation, and the entry point where there are several
  const LaunchRecipe recipe;

  /// The bytes of an argument of the call: the declared size, or the image's size of a struct without one.
  std::uint32_t bytes_of(std::size_t argument) const noexcept {
    if (const std::uint32_t declared = manifest.arguments[argument].type.size()) return declared;
    std::size_t position = 0;  // the manifest's reader knows that the kernel gets it
    while (recipe.passed[position].from != source::PassedArgument::From::call ||
           recipe.passed[position].index != argument)
      ++position;
    return facts.arguments[position].size;
  }
  [[noreturn]] void fail(Errc code, const std::string& what) const { throw Error(code, name + ": " + what); }
};

}  // namespace kiln::runtime
