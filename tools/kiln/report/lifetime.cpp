// The page's section about requests to the store and their results.
#include "tools/kiln/report/lifetime.hpp"

#include <algorithm>
#include <cstdint>
#include <map>

#include "tools/kiln/report/page.hpp"
#include "tools/kiln/report/table.hpp"

namespace kiln::cli {
namespace {

struct Section {
  const char *group, *title, *first_column, *none;
};
constexpr Section kSections[] = {
    {"hits", "Hits by level", "Level", "No hit is counted yet."},
    {"misses", "Misses by reason", "Reason", "No miss is counted yet."},
    {"puts", "Puts by outcome", "Outcome", "No put is counted yet."},
};

/// Meanings by "group.name". A counter that is newer than this list is shown without a meaning.
const std::map<std::string, const char*>& meanings() {
  static const std::map<std::string, const char*> out{
      {"hits.memory", "images that were still in the memory of the process"},
      {"hits.layer", "found in a read-only layer"},
      {"hits.disk", "found in this store"},
      {"hits.foreign_toolchain",
       "compiled by another toolchain; served to a host that is sealed or has no compiler"},
      {"misses.absent", "never compiled, or evicted"},
      {"misses.damaged", "the record failed its checksum, or is of another version"},
      {"misses.other_key_text", "another specialisation with the same hash"},
      {"misses.gate_timeout", "a writer held the gate for too long"},
      {"misses.unreadable", "the file could not be read"},
      {"misses.no_store", "there was no store to look in"},
      {"puts.stored", "written"},
      {"puts.present", "another process had written it"},
      {"puts.read_only", "not written: the store may not be written"},
      {"puts.gate_timeout", "not written: other writers held the gate for too long"},
      {"puts.full", "not written: the store, or its disk, is full"},
      {"puts.failed", "not written: an error of the disk or the file"},
      {"puts.queue_full", "not written: compiled faster than the disk stores"},
      {"puts.unpublishable", "not written: the key does not cover what was compiled"},
      {"compiles", "compiled"},
      {"compile_failures", "refused by the compiler, killed, or out of time"},
      {"remembered_failures", "refused with the error of an earlier compile"},
      {"waits", "calls that waited for the compile of another caller"},
      {"sealed_misses", "refused: a sealed service does not compile"},
      {"loads", "images loaded into a context"},
      {"evictions", "entries removed to make room"},
      {"convoy_left", "compiled without the lock, after two holders left no record"},
      {"flight_timeouts", "waited for another process for too long"},
      {"fallbacks", "a fallback was served meanwhile"},
      {"adopted", "fallbacks replaced by the requested kernel"},
  };
  return out;
}

std::string words_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string meaning_of(const std::string& path) {
  const auto found = meanings().find(path);
  return found == meanings().end() ? std::string() : found->second;
}

std::string section_html(const Section& section, const Json& group) {
  std::uint64_t sum = 0;
  for (const auto& [name, value] : group.items()) sum += value.get<std::uint64_t>();
  std::string out = std::string("<div class=\"third\"><h3>") + section.title + "</h3>\n";
  if (sum == 0) return out + "<p class=\"empty\">" + section.none + "</p></div>\n";
  std::vector<std::vector<Cell>> rows;
  std::string zeros;
  for (const auto& [name, value] : group.items()) {
    if (value == 0) {
      zeros += (zeros.empty() ? "" : ", ") + words_of(name);
      continue;
    }
    const auto count = value.get<std::uint64_t>();
    Cell label = text_cell(words_of(name));
    const std::string meaning = meaning_of(std::string(section.group) + '.' + name);
    if (!meaning.empty()) label.html += "<small>" + html(meaning) + "</small>";
    label.value = html(name);
    rows.push_back(
        {label, count_cell(count), bar_cell(static_cast<double>(count) / static_cast<double>(sum))});
  }
  return out + table_html(section.title, {{section.first_column}, {"Count", true}, {"Share"}}, rows) +
         (zeros.empty() ? "" : "<p class=\"quiet\">None: " + html(zeros) + ".</p>\n") + "</div>\n";
}

}  // namespace

std::string lifetime_html(const ReportData& data) {
  std::string out = "<div class=\"thirds\">\n";
  for (const Section& section : kSections) out += section_html(section, data.lifetime.at(section.group));
  out += "</div>\n<h3>All other counters</h3>\n";
  std::vector<std::vector<Cell>> rows;
  for (const auto& [name, value] : data.lifetime.items()) {
    if (value.is_object() || name.ends_with("_us") || value == 0) continue;
    rows.push_back(
        {text_cell(words_of(name)), count_cell(value.get<std::uint64_t>()), text_cell(meaning_of(name))});
  }
  if (rows.empty()) return out + "<p class=\"empty\">Nothing yet.</p>\n";
  return out + table_html("Other counters", {{"Counter"}, {"Count", true}, {"Meaning"}}, rows);
}

}  // namespace kiln::cli
