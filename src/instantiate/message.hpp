// Messages of a manifest with the values that they name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "manifest/manifest.hpp"

namespace kiln::source {

/// A [[require]]'s message with each {NAME} replaced by its value: parameters in canonical
/// text, pointers in hexadecimal, floating-point arguments as `floats` (by argument) has them, the rest as
/// integers.
std::string render_message(const Manifest& manifest, std::string_view message,
                           std::span<const std::int64_t> slots, std::span<const double> floats = {});

}  // namespace kiln::source
