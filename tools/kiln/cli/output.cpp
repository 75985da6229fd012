#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/cli/table.hpp"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/file.hpp"
#include "base/terminal.hpp"
#include "cache/place/directory.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

Terminal terminal_of(int fd) {
  Terminal out;
  if (!::isatty(fd)) return out;
  out.interactive = base::understands_escapes(fd);
  out.colour = base::shows_colours(fd);
  winsize size{};
  out.width = ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  return out;
}

std::string formatted(const char* format, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

}  // namespace

Terminal standard_output() { return terminal_of(STDOUT_FILENO); }
Terminal standard_error() { return terminal_of(STDERR_FILENO); }

std::string paint(std::string_view text, Style style, const Terminal& terminal) {
  static constexpr const char* codes[] = {"", "1", "2", "32", "33", "31", "36"};
  if (!terminal.colour || style == Style::plain || text.empty()) return std::string(text);
  return std::string("\033[") + codes[static_cast<int>(style)] + 'm' + std::string(text) + "\033[0m";
}

std::string human_bytes(std::uint64_t bytes) {
  static constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  while (value >= 1023.95 && unit < 3) value /= 1024, ++unit;
  return formatted(value < 99.95 ? "%.1f " : "%.0f ", value) + units[unit];
}

std::string human_ms(double ms) {
  if (ms < 0.995) return formatted("%.2f ms", ms);
  if (ms < 9.95) return formatted("%.1f ms", ms);
  if (ms < 999.5) return formatted("%.0f ms", ms);
  if (ms < 59950) return formatted("%.1f s", ms / 1000);
  const auto seconds = static_cast<std::int64_t>(std::lround(ms / 1000));
  return std::to_string(seconds / 60) + 'm' + std::to_string(seconds % 60) + 's';
}

std::string human_age(std::int64_t seconds) {
  if (seconds < 0) return "future";
  if (seconds < 60) return std::to_string(seconds) + 's';
  if (seconds < 3600) return std::to_string(seconds / 60) + 'm';
  if (seconds < 48 * 3600) return std::to_string(seconds / 3600) + 'h';
  return std::to_string(seconds / 86400) + 'd';
}

std::string counted(std::uint64_t count, std::string_view one, std::string_view many) {
  std::string out = std::to_string(count) + ' ';
  if (count == 1) return out.append(one);
  return many.empty() ? out.append(one) + 's' : out.append(many);
}

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void print_foreign(std::string_view text) {
  if (!::isatty(STDOUT_FILENO)) return print(text);
  std::string out(text);
  for (char& c : out)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f) c = '?';
  print(out);
}

void print_paragraph(std::string_view text, Style style) {
  const Terminal terminal = standard_output();
  for (const std::string& line : wrapped(text, terminal.width)) print(paint(line, style, terminal) + '\n');
}

void print_heading(std::string_view text) { print(paint(text, Style::bold, standard_output()) + '\n'); }

void print_definition(std::string_view name, std::string_view text, std::size_t indent) {
  const Terminal terminal = standard_output();
  const std::size_t width = terminal.width > indent + 24 ? terminal.width - indent : terminal.width ? 24 : 0;
  std::string out = "  " + paint(name, Style::cyan, terminal);
  std::size_t at = 2 + columns_of(name);
  for (const std::string& line : wrapped(text, width)) {
    if (!name.empty() && at >= indent) out += '\n', at = 0;
    out += std::string(indent - at, ' ') + line + '\n';
    at = 0;
  }
  print(out);
}

void print_json(const Json& json) { print(json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n'); }

Json json_of(const std::vector<Parameter>& parameters) {
  Json out = Json::object();
  for (const Parameter& p : parameters) out[p.name] = p.value;
  return out;
}

std::string text_of(const std::vector<Parameter>& parameters) {
  std::string out;
  for (const Parameter& p : parameters) out += (out.empty() ? "" : " ") + p.name + '=' + p.value;
  return out;
}

void write_output(const std::string& path, std::string_view bytes) {
  if (path == "-") return print(bytes);
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0 || S_ISREG(st.st_mode)) return base::write_file(path, bytes);
  if (S_ISLNK(st.st_mode)) {
    // The link's target is replaced, not the link itself. A link of another user is refused, because its
    // owner decides where it leads.
    cache::refuse_foreign_links(std::filesystem::absolute(path).string());
    if (std::error_code none; ::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode))
      return base::write_file(std::filesystem::canonical(path, none).string(), bytes);
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wbe"), &std::fclose);
  if (!file || std::fwrite(bytes.data(), 1, bytes.size(), file.get()) != bytes.size() ||
      std::fflush(file.get()) != 0) {
    throw Error(Errc::io, "cannot write '" + path + "': " + std::strerror(errno));
  }
}

}  // namespace kiln::cli
