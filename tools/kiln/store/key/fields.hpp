// A key text, printed field by field.
#pragma once

#include <string>
#include <string_view>

#include "compile/key/facts.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

/// Unless `full`: each included file is listed once, toolkit headers are only counted, and digests are cut.
void print_key_fields(std::string_view key_text, bool full);
/// Further entry points, globals and exports: printed a line each, or added to `out` as fields.
void print_symbols(const compile::Facts& facts, std::size_t indent);
void add_symbols(Json& out, const compile::Facts& facts);
/// Adds the fields that only `show` has: names, arguments, phase times, log, key fields.
void add_details(Json& out, const compile::Facts& facts, std::string_view key_text);

}  // namespace kiln::cli
