// Output of results: colours, figures for people, paragraphs that fit the terminal, JSON.
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

/// JSON whose fields keep the order in which they were added.
using Json = nlohmann::ordered_json;

struct Terminal {
  bool interactive = false;  ///< a terminal that understands escape codes
  bool colour = false;       ///< interactive, and NO_COLOR is not set
  std::size_t width = 0;     ///< columns; 0 when the output is no terminal, and no line is broken
};
/// Stdout and stderr. Both query the terminal on every call, because it can be resized.
Terminal standard_output();
Terminal standard_error();

enum class Style { plain, bold, dim, green, yellow, red, cyan };
std::string paint(std::string_view text, Style style, const Terminal& terminal);

std::string human_bytes(std::uint64_t bytes);  ///< "7.7 KiB"
std::string human_ms(double ms);               ///< "0.02 ms", "41 ms", "1.2 s", "3m20s"
std::string human_age(std::int64_t seconds);   ///< "12s", "5m", "3h", "9d"
/// "1 entry", "3 entries". The default plural is the singular with an s.
std::string counted(std::uint64_t count, std::string_view one, std::string_view many = {});

void print(std::string_view text);  ///< on stdout
/// Prints on stdout text that somebody else wrote. On a terminal, control characters other than line ends and
/// tabs become "?".
void print_foreign(std::string_view text);
/// Prints one paragraph, wrapped to the terminal's width.
void print_paragraph(std::string_view text, Style style = Style::plain);
/// Prints a heading in bold and a line end.
void print_heading(std::string_view text);
/// Prints "  NAME  text": `text` is wrapped, and indented to column `indent`.
void print_definition(std::string_view name, std::string_view text, std::size_t indent);
void print_json(const Json& json);

/// {"T": "bf16", "H": "4096"}
Json json_of(const std::vector<Parameter>& parameters);
/// "T=bf16 H=4096"
std::string text_of(const std::vector<Parameter>& parameters);

/// Writes to a file, or to stdout when `path` is "-". A regular file is replaced; through a symlink, its
/// target is. A device or a pipe is written to as it is. Throws Error(io).
void write_output(const std::string& path, std::string_view bytes);

}  // namespace kiln::cli
