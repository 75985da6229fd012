// Messages of a manifest, with the values that they name filled in.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "manifest/manifest.hpp"

namespace kiln::source {

/// A [[require]]'s message with each {NAME} replaced by its value. Parameters appear in canonical text and
/// pointers in hexadecimal. A floating-point argument takes its value from `floats`, which is indexed by
/// argument. Other values appear as integers.
std::string render_message(const Manifest& manifest, std::string_view message,
                           std::span<const std::int64_t> slots, std::span<const double> floats = {});

}  // namespace kiln::source
