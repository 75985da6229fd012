// Texts for outcomes and recorded facts.
#pragma once

#include <string>
#include <string_view>

#include "compile/key/facts.hpp"
#include "kiln/kernel.hpp"

namespace kiln::cli {

/// "memory", "disk", "layer", "remote", "compiled", "waited"; part of the JSON contract.
std::string_view name_of(Outcome outcome) noexcept;
/// "34 registers, no spills, 1.0 KiB shared, at most 256 threads"
std::string resources_of(const compile::EntryFacts& facts);
/// "41 ms (front end 22, NVVM 9, ptxas 8) with NVRTC 13.0"
std::string phases_of(const compile::Facts& facts);

}  // namespace kiln::cli
