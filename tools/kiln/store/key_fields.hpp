// A key text, field by field.
#pragma once

#include <string>
#include <string_view>

#include "compile/key/facts.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

/// Unless `full`, each included file once, toolkit headers only counted, digests cut.
void print_key_fields(std::string_view key_text, bool full);
/// Further entry points, globals and exports: one line each, and fields of `out`.
void print_symbols(const compile::Facts& facts, std::size_t indent);
void add_symbols(Json& out, const compile::Facts& facts);
/// Adds what only `show` has: names, arguments, phase times, log, key fields.
void add_details(Json& out, const compile::Facts& facts, std::string_view key_text);

}  // namespace kiln::cli
