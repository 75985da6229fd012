// A template as text and as JSON.
#pragma once

#include <string>

#include "manifest/catalog.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

/// "T H [GEMMA VEC]": parameters in brackets have a default.
std::string short_parameters(const source::Manifest& manifest);
/// "f32 f16 bf16", "1..65536", "false true"
std::string allowed_values(const source::ParameterSpec& parameter);
/// "sm_80 and later", "sm_90a", "any"
std::string supported_archs(const source::Manifest& manifest);
/// "base", "family" or "exact": the instructions that its source needs from 9.0 on.

void print_page(const source::Template& origin);

}  // namespace kiln::cli
