// How results look: colours, human figures, tables that fit the terminal, JSON.
#pragma once

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/specialization.hpp"

#include "tools/kiln/cli/table.hpp"

namespace kiln::cli {

/// Keeps the order of its fields.
using Json = nlohmann::ordered_json;

struct Terminal {
  bool interactive = false;  ///< a terminal that understands escape codes
  bool colour = false;       ///< interactive, and NO_COLOR is not set
  std::size_t width = 0;     ///< columns; 0 when the output is no terminal: no line is broken
};
/// Of stdout and stderr. Asked anew on each call: a terminal can be resized.
Terminal standard_output();
Terminal standard_error();

enum class Style { plain, bold, dim, green, yellow, red, cyan };
std::string paint(std::string_view text, Style style, const Terminal& terminal);

std::string human_bytes(std::uint64_t bytes);  ///< "7.7 KiB"
std::string human_ms(double ms);               ///< "0.02 ms", "41 ms", "1.2 s", "3m20s"
std::string human_age(std::int64_t seconds);   ///< "12s", "5m", "3h", "9d"
/// "1 entry", "3 entries"; the plural is the singular with an s unless given.
std::string counted(std::uint64_t count, std::string_view one, std::string_view many = {});

void print(std::string_view text);  ///< on stdout
/// On stdout. Where that is a terminal, without the control characters that somebody else's text may hold;
/// line ends and tabs stay.
void print_foreign(std::string_view text);
/// One paragraph, wrapped.
void print_paragraph(std::string_view text, Style style = Style::plain);
/// A heading in bold and its newline.
void print_heading(std::string_view text);
/// "  NAME  text": `text` wrapped and indented to `indent` columns.
void print_definition(std::string_view name, std::string_view text, std::size_t indent);
void print_json(const Json& json);

/// {"T": "bf16", "H": "4096"}
Json json_of(const std::vector<Parameter>& parameters);
/// "T=bf16 H=4096"
std::string text_of(const std::vector<Parameter>& parameters);

/// To a file, or to stdout when `path` is "-". What is no regular file (a device, a pipe, a symlink) is
/// written through. Throws Error(io).
void write_output(const std::string& path, std::string_view bytes);

}  // namespace kiln::cli
