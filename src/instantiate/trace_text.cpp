#include "instantiate/trace_text.hpp"

#include <algorithm>

#include "manifest/toml/string.hpp"

namespace kiln::source {
namespace {

constexpr std::string_view kBegin = "[[prewarm]]", kEnd = "# end";

bool has_control_characters(std::string_view line) noexcept {
  return std::any_of(line.begin(), line.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\t'; });
}

/// A piece of a trace: a finished row, or the text between two finished rows.
struct Piece {
  std::size_t begin = 0, end = 0;
  bool finished = false;
};

/// Calls `each` with the pieces in order. Together they are the whole text.
template <class Each>
void each_piece(std::string_view text, Each&& each) {
  std::size_t start = 0;  // start of the current piece
  bool in_row = false, sound = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t newline = text.find('\n', at);
    if (newline == std::string_view::npos) break;  // a line without a newline is not finished either
    std::string_view line = text.substr(at, newline - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line == kBegin) {
      if (at > start) each(Piece{start, at, false});
      start = at, in_row = true, sound = true;
    } else if (in_row && line == kEnd) {
      each(Piece{start, newline + 1, sound});
      start = newline + 1, in_row = false;
    } else if (has_control_characters(line)) {
      sound = false;
    }
    at = newline + 1;
  }
  if (start < text.size()) each(Piece{start, text.size(), false});
}

}  // namespace

const std::string_view kTraceHeader = "# kiln record 1\n";
const std::string_view kTracePreamble =
    "# Specialisations that processes asked kiln for: `kiln prewarm THIS_FILE` compiles them. A row without\n"
    "# its '# end' does not count. Delete the first line to make this file a plan of your own.\n";

bool is_trace(std::string_view text) noexcept {
  const auto [at, header] = std::mismatch(text.begin(), text.end(), kTraceHeader.begin(), kTraceHeader.end());
  return header == kTraceHeader.end() || (at != text.end() && *at == '\0');
}

std::string trace_row(const Specialization& specialization, const base::Arch& arch) {
  std::string out(kBegin);
  out += "\ntemplate = " + toml_string(specialization.template_name) +
         "\narch = " + toml_string(arch.name()) + '\n';
  for (const Parameter& p : specialization.parameters) out += p.name + " = " + toml_string(p.value) + '\n';
  return out.append(kEnd) + '\n';
}

std::string trace_row(const Resolved& resolved) {
  if (resolved.open.empty()) return trace_row(resolved.specialization, resolved.arch);
  Specialization said = resolved.specialization;
  if (resolved.undecided) {
    std::erase_if(said.parameters, [&](const Parameter& p) {
      return std::find(resolved.open.begin(), resolved.open.end(), p.name) != resolved.open.end();
    });
    return trace_row(said, resolved.arch);
  }
  std::string out = trace_row(said, resolved.arch), names;
  for (const std::string& name : resolved.open) names += (names.empty() ? "" : ", ") + toml_string(name);
  return out.insert(out.rfind(kEnd), "tuned = [" + names + "]\n");
}

std::size_t each_finished_row(std::string_view text, const std::function<void(std::string_view)>& each) {
  std::size_t after = 0;
  each_piece(text, [&](const Piece& piece) {
    if (!piece.finished) return;
    each(text.substr(piece.begin, piece.end - piece.begin));
    after = piece.end;
  });
  return after;
}

std::string finished_rows(std::string_view text, const std::string& file, std::vector<std::string>& ignored) {
  std::string out(text);
  std::size_t line = 1, counted = 0;
  each_piece(text, [&](const Piece& piece) {
    line +=
        static_cast<std::size_t>(std::count(text.begin() + static_cast<std::ptrdiff_t>(counted),
                                            text.begin() + static_cast<std::ptrdiff_t>(piece.begin), '\n'));
    counted = piece.begin;
    if (piece.finished) return;
    std::size_t at_line = line, damaged_line = 0;
    for (std::size_t at = piece.begin; at < piece.end; ++at_line) {
      const std::size_t newline = std::min(text.find('\n', at), piece.end - 1);
      const std::string_view whole = text.substr(at, newline + 1 - at);
      const std::string_view said = whole.substr(0, whole.find_last_not_of(" \t\r\n") + 1);
      const bool comment = said.empty() || (said[0] == '#' && !has_control_characters(said));
      if (!comment) {
        if (!damaged_line) damaged_line = at_line;
        for (std::size_t i = at; i <= newline; ++i)
          if (out[i] != '\n') out[i] = ' ';
      }
      at = newline + 1;
    }
    if (damaged_line)
      ignored.push_back(file + ':' + std::to_string(damaged_line) +
                        ": ignored a row without its '# end', which was never finished");
  });
  return out;
}

}  // namespace kiln::source
