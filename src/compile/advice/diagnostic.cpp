#include "compile/advice/diagnostic.hpp"

#include <algorithm>
#include <optional>

#include "base/text.hpp"
#include "compile/worker/protocol.hpp"

namespace kiln::compile {
namespace {

constexpr std::size_t kMost = 1000;

class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  std::optional<std::string_view> next() {
    if (rest_.empty()) return std::nullopt;
    const auto end = rest_.find('\n');
    const std::string_view out = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    return out;
  }

 private:
  std::string_view rest_;
};

/// Recognises "k.cu(3): error #20-D: text", "k.cu(3): catastrophic error: text", "error: text", and ptxas'
/// "... error : text" and "... fatal   : text".
std::optional<Diagnostic> read_error(std::string_view line) {
  if (line.empty() || line.front() == ' ') return std::nullopt;  // an echo of the source
  Diagnostic out;
  if (line.starts_with("ptxas ")) {
    for (const std::string_view kind : {"error   : ", "fatal   : "}) {
      if (const auto at = line.find(kind); at != std::string_view::npos) {
        out.message = line.substr(at + kind.size());
        return out;
      }
    }
    return std::nullopt;
  }
  std::string_view rest = line;
  const auto close = line.find("): ");
  const auto open = close == std::string_view::npos ? close : line.rfind('(', close);
  if (open != std::string_view::npos && open > 0) {
    out.file = line.substr(0, open);
    out.line = line.substr(open + 1, close - open - 1);
    if (out.line.empty() || out.line.find_first_not_of("0123456789") != std::string_view::npos)
      return std::nullopt;
    rest = line.substr(close + 3);
  }
  if (rest.starts_with("catastrophic ")) rest.remove_prefix(13);
  if (!rest.starts_with("error") && !rest.starts_with("Error")) return std::nullopt;
  const auto colon = rest.find(": ");
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view number = rest.substr(5, colon - 5);  // "" or " #20-D"
  if (!number.empty() && !number.starts_with(" #")) return std::nullopt;
  out.message = rest.substr(colon + 2);
  return out;
}

/// The identifier of `source` at or after the column of `caret`'s '^'.
std::string_view word_at(std::string_view source, std::string_view caret) {
  const auto column = caret.find('^');
  if (column == std::string_view::npos || caret.find_first_not_of(" ^") != std::string_view::npos ||
      column >= source.size() || !base::is_identifier_character(source[column]))
    return {};
  auto begin = column, end = column;
  while (begin > 0 && base::is_identifier_character(source[begin - 1])) --begin;
  while (end < source.size() && base::is_identifier_character(source[end])) ++end;
  return source.substr(begin, end - begin);
}

}  // namespace

std::string Diagnostic::location() const {
  std::string_view shown = file;
  const std::string_view program = kProgramDirectory;
  if (shown.starts_with(program)) shown.remove_prefix(program.size());
  // A search directory, such as ".k0/norm.cuh", under the name that the compiler gets.
  if (shown.starts_with(".k") || shown.starts_with(".t"))
    shown.remove_prefix(std::min(shown.find('/'), shown.size() - 1) + 1);
  if (shown.empty()) return {};
  return "line " + std::string(line) + " of " + std::string(shown);
}

std::vector<Diagnostic> errors_of(std::string_view log) {
  std::vector<Diagnostic> out;
  Lines lines(log);
  bool fresh = false;  // the echo of the source and its caret may come next
  while (const auto line = lines.next()) {
    if (auto error = read_error(*line)) {
      if (out.size() == kMost) break;
      out.push_back(*error);
      fresh = true;
    } else if (fresh && line->starts_with("  ")) {
      if (line->find_first_not_of(" ^") == std::string_view::npos) {
        out.back().word = word_at(out.back().source, *line);
        fresh = false;
      } else {
        out.back().source = *line;
      }
    } else {
      fresh = false;
    }
  }
  return out;
}

}  // namespace kiln::compile
