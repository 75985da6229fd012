#include "tools/kiln/top/frame.hpp"
#include "tools/kiln/cli/table.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace kiln::cli {
namespace {

using State = TopRow::State;

constexpr std::size_t kProcessColumns = 28, kFewestRows = 4;

struct Line {
  std::vector<std::string> cells;
  Style style = Style::plain;
};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 9.95 ? "%.1f" : "%.0f", value);
  return text;
}

Style style_of(State state) {
  switch (state) {
    case State::compiling:
    case State::writing:
      return Style::green;
    case State::stopped:
    case State::left_behind:
      return Style::red;
    case State::holding:
      return Style::yellow;
    default:
      return Style::plain;
  }
}

std::string words_of(State state) {
  std::string out(name_of(state));
  std::replace(out.begin(), out.end(), '_', ' ');
  return out;
}

/// "3 compiling, 1 waiting": the counts that are not zero.
std::string counts(const TopSnapshot& snapshot) {
  std::string out;
  for (int i = 0; i <= static_cast<int>(State::writing); ++i) {
    const auto state = static_cast<State>(i);
    if (const std::size_t count = snapshot.count(state))
      out += (out.empty() ? "" : ", ") + std::to_string(count) + ' ' + words_of(state);
  }
  return out.empty() ? "no process compiles, waits or holds a lock" : out;
}

std::string pool(const TopSnapshot& snapshot) {
  std::string out = "slots " + std::to_string(snapshot.slots_used) + " of " + std::to_string(snapshot.slots) +
                    " (+" + std::to_string(snapshot.express_slots) + " for callers)";
  if (snapshot.caller_waits) out += ", a caller waits for one";
  if (snapshot.load)
    out += "  load " + number(*snapshot.load) + " on " +
           counted(static_cast<std::uint64_t>(snapshot.cores), "core");
  return out;
}

std::string rates(const TopSnapshot& snapshot) {
  std::string out = number(snapshot.compiles_per_minute) + " compiles/min";
  if (snapshot.hits_per_minute) out += "  " + number(*snapshot.hits_per_minute) + " hits/min";
  return out;
}

std::string duration(double seconds) { return human_ms(seconds * 1000); }

std::string time_of_day(std::int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm parts{};
  char text[32];
  ::localtime_r(&time, &parts);
  return {text, std::strftime(text, sizeof text, "%H:%M:%S", &parts)};
}

/// Appends lines with columns as wide as their cells. The last column is cut to the terminal's width.
void append(std::vector<std::string>& out, const std::vector<Line>& lines, const Terminal& terminal) {
  std::vector<std::size_t> widths(lines.front().cells.size());
  for (const Line& line : lines)
    for (std::size_t i = 0; i < widths.size(); ++i)
      widths[i] = std::max(widths[i], columns_of(line.cells[i]));
  for (const Line& line : lines) {
    std::string text;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      text += line.cells[i];
      if (i + 1 < widths.size()) text += std::string(widths[i] - columns_of(line.cells[i]) + 2, ' ');
    }
    out.push_back(paint(terminal.width ? clipped(text, terminal.width) : text, line.style, terminal));
  }
}

std::vector<Line> lines_of(const std::vector<TopRow>& rows) {
  std::vector<Line> out{{{"STATE", "FOR", "PROCESS", "WHAT"}, Style::bold}};
  for (const TopRow& row : rows)
    out.push_back({{words_of(row.state), row.seconds ? duration(*row.seconds) : "",
                    clipped(row.process, kProcessColumns), row.subject},
                   style_of(row.state)});
  return out;
}

std::vector<Line> lines_of(const std::vector<TopFinished>& flights) {
  static constexpr const char* ends[] = {"compiling", "published", "failed", "unpublished"};
  std::vector<Line> out{{{"ENDED", "AGO", "TOOK", "PROCESS", "WHAT"}, Style::bold}};
  for (const TopFinished& flight : flights)
    out.push_back({{ends[static_cast<int>(flight.end)], human_age(static_cast<std::int64_t>(flight.ago_s)),
                    duration(flight.seconds), clipped(flight.process, kProcessColumns), flight.subject},
                   flight.end == cache::FlightState::published ? Style::plain : Style::yellow});
  return out;
}

std::vector<Line> lines_of(const std::vector<TopSpace>& spaces) {
  std::vector<Line> out{
      {{"SPACE", "HITS", "/MIN", "MISSES", "STORED", "WAITS", "READ", "WRITTEN", "FAILED"}, Style::bold}};
  for (const TopSpace& space : spaces) {
    const auto count = [&](const char* name) { return space.counts.at(name); };
    const std::uint64_t failed = failed_of(space.counts);
    out.push_back(
        {{space.name, std::to_string(count("hits")),
          space.hits_per_minute ? number(*space.hits_per_minute) : "-", std::to_string(count("misses")),
          std::to_string(count("puts")), std::to_string(count("waits")), human_bytes(count("bytes_read")),
          human_bytes(count("bytes_written")), std::to_string(failed)},
         failed > 0 ? Style::yellow : Style::plain});
  }
  return out;
}

/// Keeps at most `most` lines; the last one then gives the number of missing lines.
void cut(std::vector<Line>& lines, std::size_t most) {
  if (lines.size() <= most) return;
  const std::size_t missing = lines.size() - most + 1;
  lines.resize(most);
  lines.back() = {std::vector<std::string>(lines.front().cells.size()), Style::dim};
  lines.back().cells.front() = "and " + std::to_string(missing) + " more";
}

}  // namespace

std::vector<std::string> frame_of(const TopSnapshot& snapshot, const Terminal& terminal, std::size_t rows) {
  std::vector<std::string> out;
  const auto say = [&](const std::string& text, Style style = Style::plain) {
    out.push_back(paint(terminal.width ? clipped(text, terminal.width) : text, style, terminal));
  };
  say(time_of_day(snapshot.taken_s) + "  " + snapshot.directory, Style::bold);
  say(counts(snapshot));
  say(pool(snapshot));
  say(rates(snapshot));
  for (const std::string& unseen : snapshot.unseen) say("not seen: " + unseen, Style::yellow);
  const auto room = [&] {  // lines that a section may use below an empty line
    return rows == 0 ? ~std::size_t{0} : rows > out.size() + 1 ? rows - out.size() - 1 : 0;
  };
  const auto room_beside = [&](std::size_t reserved) {
    return room() > reserved + 2 ? room() - reserved : room();
  };
  const std::size_t for_spaces =
      snapshot.spaces.empty() || rows == 0 ? 0 : std::min(snapshot.spaces.size() + 2, kFewestRows);
  if (!snapshot.rows.empty() && room() >= 2) {
    out.emplace_back();
    std::vector<Line> lines = lines_of(snapshot.rows);
    // Finished compiles get a few lines even when many processes wait, and so do spaces.
    const std::size_t reserved = snapshot.finished.empty() || rows == 0 ? 0 : kFewestRows;
    cut(lines, room_beside(reserved + for_spaces));
    append(out, lines, terminal);
  }
  if (!snapshot.finished.empty() && room() >= 2) {
    out.emplace_back();
    std::vector<Line> lines = lines_of(snapshot.finished);
    if (rows != 0 && lines.size() > room_beside(for_spaces)) lines.resize(room_beside(for_spaces));
    append(out, lines, terminal);
  }
  if (!snapshot.spaces.empty() && room() >= 2) {
    out.emplace_back();
    std::vector<Line> lines = lines_of(snapshot.spaces);
    cut(lines, room());
    append(out, lines, terminal);
  }
  return out;
}

}  // namespace kiln::cli
