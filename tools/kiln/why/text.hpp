// How `kiln why` says what it found.
#pragma once

#include <string>

#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/why/answer.hpp"

namespace kiln::cli {

/// One line for a tired person: "miss: kiln/dtype.cuh changed since rms_norm T=bf16 H=4096 was compiled 3h
/// ago".
std::string headline(const WhyAnswer& answer);
void print_answer(const WhyAnswer& answer);
Json json_of(const WhyAnswer& answer);
/// What was met that is damaged; empty: nothing.
std::string damage_of(const WhyAnswer& answer);

}  // namespace kiln::cli
