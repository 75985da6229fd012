// The page's head and its tables about entries.
#include "tools/kiln/report/tables.hpp"

#include <ctime>

#include "kiln/kiln.h"
#include "tools/kiln/report/page.hpp"
#include "tools/kiln/report/table.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kTemplateRows = 200;

std::string total(const std::string& name, const std::string& value, const std::string& more = {}) {
  return "<div><dt>" + html(name) + "</dt><dd>" + html(value) +
         (more.empty() ? "" : "<small>" + html(more) + "</small>") + "</dd></div>\n";
}

std::string names(const std::vector<std::string>& of) {
  std::string out;
  for (std::size_t i = 0; i < of.size() && i < 8; ++i) out += (i ? ", " : "") + of[i];
  return out + (of.size() > 8 ? ", ..." : "");
}

std::string note(const std::string& text) { return "<li>" + html(text) + "</li>\n"; }

std::string empty_text(const ReportData& data) {
  return data.unreadable.empty() ? "Nothing is cached here yet." : "The store's file cannot be read.";
}

std::string paragraph(const std::string& text) { return "<p class=\"empty\">" + html(text) + "</p>\n"; }

Recorded recorded(bool is) { return is ? Recorded::yes : Recorded::no; }

std::vector<Cell> row_of(const ReportData& data, const StoredEntry& e, const KeyNames& names) {
  const compile::Facts& f = e.facts;
  const Recorded timed = recorded(f.compile_ms > 0);
  const auto phase = [&](double ms) { return timed == Recorded::yes ? ms_cell(ms) : Cell{"&ndash;", "-1"}; };
  return {text_cell(f.unit),
          code_cell(data.parameters_of(e)),
          text_cell(f.arch),
          ms_cell(f.compile_ms, timed),
          phase(f.frontend_ms),
          phase(f.nvvm_ms),
          phase(f.ptxas_ms),
          count_cell(f.registers),
          bytes_cell(f.spill_store_bytes + f.spill_load_bytes),
          bytes_cell(f.shared_bytes),
          bytes_cell(e.cubin_bytes),
          bytes_cell(e.stored_bytes),
          code_cell(names.of(e.key))};
}

std::string entries_table(const ReportData& data, const std::string& caption,
                          const std::vector<const StoredEntry*>& entries) {
  const KeyNames names = names_of(data.entries);
  std::vector<std::vector<Cell>> rows;
  for (const StoredEntry* entry : entries) rows.push_back(row_of(data, *entry, names));
  return "<p class=\"lead\">Parameters that are the same for all entries of a template are left out. Select "
         "a "
         "heading to sort.</p>\n" +
         table_html(caption,
                    {{"Template"},
                     {"Parameters"},
                     {"Arch"},
                     {"Compile", true},
                     {"Front end", true},
                     {"NVVM", true},
                     {"ptxas", true},
                     {"Registers", true},
                     {"Spills", true},
                     {"Shared", true},
                     {"Image", true},
                     {"Stored", true},
                     {"Key"}},
                    rows);
}

}  // namespace

std::string utc_text(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  char text[64];
  if (!::gmtime_r(&time, &parts) || std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts) == 0)
    return "an unknown time";
  return text;
}

std::string totals_html(const ReportData& data) {
  const bool any = !data.entries.empty(), all_timed = data.timed == data.entries.size();
  const double spent = static_cast<double>(data.lifetime.value("compile_us", std::uint64_t{0})) / 1000;
  std::string out =
      total("Entries", std::to_string(data.store.entries), human_bytes(data.cubin_bytes) + " of images");
  out += total("On disk", human_bytes(data.store.live_bytes),
               "live, in a file of " + human_bytes(data.store.file_bytes) + " that may grow to " +
                   human_bytes(data.store.cap_bytes));
  out += total("Templates", std::to_string(data.templates.size()), names(data.templates));
  out += total("Archs", std::to_string(data.archs.size()), names(data.archs));
  out += total("Compile time of the entries",
               !any              ? "none"
               : data.timed == 0 ? "not recorded"
                                 : human_ms(data.compile_ms),
               !any || all_timed
                   ? "to compile all of them once"
                   : "recorded for " + std::to_string(data.timed) + " of " +
                         std::to_string(data.entries.size()) + "; an imported bundle has no times");
  out += total(
      "Compile time spent", human_ms(spent),
      counted(data.lifetime.value("compiles", std::uint64_t{0}), "compile") + " since the store was made");
  out += total(
      "Compile time saved", data.saved_ms > 0 ? human_ms(data.saved_ms) : "none yet",
      data.saved_counted ? "by hits, since the store was made" : "at least, by the uses recorded so far");
  char rate[32] = "no requests yet";
  if (data.hit_rate) std::snprintf(rate, sizeof rate, "%.1f %%", *data.hit_rate * 100);
  out += total("Hit rate", rate, "of requests that no ready kernel answered");
  return out;
}

std::string notes_html(const ReportData& data) {
  std::string out;
  if (!data.unreadable.empty())
    out += note("The store's file is damaged: " + data.unreadable +
                "; 'kiln verify' lists the damage, and the next publish heals it.");
  if (!data.damaged.empty()) out += note(damaged_text(data.damaged) + ".");
  if (data.other_versions)
    out += note(counted(data.other_versions, "entry is", "entries are") +
                " of another version of kiln: counted and not shown.");
  if (!data.there) out += note(empty_store_text({data.directory, nullptr}));
  if (data.there && data.unreadable.empty() && data.store.entries == 0)
    out +=
        note("The store is empty. 'kiln prewarm', 'kiln compile' and every program that uses kiln fill it.");
  if (!data.prewarm.problem.empty())
    out += note("The note of the last prewarm is ignored: " + data.prewarm.problem +
                ". The next prewarm that compiles something replaces it.");
  return out.empty() ? out : "<ul class=\"notes\" role=\"status\">\n" + out + "</ul>\n";
}

std::string bytes_table_html(const ReportData& data) {
  if (data.groups.empty()) return paragraph(empty_text(data));
  std::vector<std::vector<Cell>> rows;
  for (const ReportGroup& g : data.groups) {
    const double share =
        data.stored_bytes ? static_cast<double>(g.stored_bytes) / static_cast<double>(data.stored_bytes) : 0;
    rows.push_back({text_cell(g.unit), text_cell(g.arch), count_cell(g.entries), bytes_cell(g.cubin_bytes),
                    bytes_cell(g.stored_bytes), percent_cell(share), bar_cell(share)});
  }
  return "<details open><summary>As a table</summary>\n" +
         table_html("Bytes by template and arch",
                    {{"Template"},
                     {"Arch"},
                     {"Entries", true},
                     {"Images", true},
                     {"Stored", true},
                     {"Share", true},
                     {"Share, drawn"}},
                    rows) +
         "</details>\n";
}

std::string times_table_html(const ReportData& data) {
  if (data.entries.empty()) return paragraph(empty_text(data));
  if (data.timed == 0)
    return paragraph("Not recorded: every entry here came from a bundle, which has no compile times.");
  std::vector<std::vector<Cell>> rows;
  for (const TemplateTimes& t : data.times) {
    if (rows.size() == kTemplateRows) break;
    std::vector<Cell> row{text_cell(t.unit), count_cell(t.entries)};
    for (const Phase phase : kPhases) {
      const Spread& spread = t.spread[static_cast<int>(phase)];
      row.push_back(ms_cell(spread.median, recorded(t.timed > 0)));
      row.push_back(ms_cell(spread.p95, recorded(t.timed > 0)));
    }
    row.push_back(ms_cell(t.spread[0].sum, recorded(t.timed > 0)));
    rows.push_back(std::move(row));
  }
  return table_html("Compile time by template",
                    {{"Template"},
                     {"Entries", true},
                     {"Whole, median", true},
                     {"p95", true},
                     {"Front end, median", true},
                     {"p95", true},
                     {"NVVM, median", true},
                     {"p95", true},
                     {"ptxas, median", true},
                     {"p95", true},
                     {"Sum", true}},
                    rows);
}

std::string slowest_table_html(const ReportData& data) {
  if (!data.slowest.empty()) return entries_table(data, "Slowest to compile", data.slowest);
  return paragraph(data.entries.empty() ? empty_text(data)
                                        : "Not recorded: an imported bundle has no compile times.");
}

std::string largest_table_html(const ReportData& data) {
  return data.largest.empty() ? paragraph(empty_text(data))
                              : entries_table(data, "Largest in the store", data.largest);
}

}  // namespace kiln::cli
