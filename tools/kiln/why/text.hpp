// The output of `kiln why`.
#pragma once

#include <string>

#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/why/answer.hpp"

namespace kiln::cli {

/// One line with the main reason: "miss: kiln/dtype.cuh changed since rms_norm T=bf16 H=4096 was compiled 3h
/// ago".
std::string headline(const WhyAnswer& answer);
void print_answer(const WhyAnswer& answer);
Json json_of(const WhyAnswer& answer);
/// A description of damage that was found; empty: none.
std::string damage_of(const WhyAnswer& answer);

}  // namespace kiln::cli
