#include "tools/kiln/tune/report.hpp"
#include "tools/kiln/cli/table.hpp"

#include <cmath>

#include "base/text.hpp"

namespace kiln::cli {
namespace {

std::string figure(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string note_of(const TuneResult& result, std::size_t i) {
  if (!result.tried[i].dropped.empty()) return "dropped: " + result.tried[i].dropped;
  const bool done = result.error.empty() && !result.interrupted && !result.tried[i].us.empty();
  if (done && result.best == i) return i == 0 ? "default, chosen" : "chosen";
  return i == 0 ? "default" : "";
}

void print_table(const TuneResult& result, bool dry) {
  using Fit = Table::Fit;
  std::vector<Table::Column> columns{{"CANDIDATE"}};
  if (!dry) {
    for (const std::string& size : result.sizes)
      columns.push_back({size.empty() ? "US" : "US " + size, Fit::right});
    columns.push_back({"RATIO", Fit::right});
    columns.push_back({"BITS"});
    columns.push_back({"CHECK"});
    columns.push_back({"REGISTERS", Fit::right});
  }
  columns.push_back({"", Fit::flexible});
  Table table(columns);
  for (std::size_t i = 0; i < result.tried.size(); ++i) {
    const TriedCandidate& tried = result.tried[i];
    std::vector<std::string> row{text_of(tried.chosen)};
    const bool timed = !tried.us.empty();
    if (!dry) {
      for (std::size_t size = 0; size < result.sizes.size(); ++size)
        row.push_back(size < tried.us.size() ? figure("%.2f", tried.us[size]) : "-");
      row.push_back(tried.ratio > 0 ? figure("%.3f", tried.ratio) : "-");
      row.push_back(!timed ? "-" : tried.bits_equal ? "same" : "other");
      row.push_back(!timed ? "-" : result.checked ? "ok" : "none");
      row.push_back(tried.registers ? std::to_string(tried.registers) : "-");
    }
    row.push_back(note_of(result, i));
    table.add(std::move(row));
  }
  table.print();
}

}  // namespace

void print_row(const std::string& template_name, const TunedRow& row, bool dry) {
  const TuneResult& result = row.result;
  print(paint(template_name + ' ' + text_of(result.fixed), Style::bold, standard_output()) + "  " + row.arch +
        (row.device.empty() ? "" : " on " + row.device) + '\n');
  print_table(result, dry);
  if (!result.refused.empty())
    print_paragraph(counted(result.refused.size(), "combination was", "combinations were") +
                        " left out because the manifest does not allow them (--json lists them).",
                    Style::dim);
  if (dry || !result.error.empty() || result.interrupted) return;
  const TriedCandidate& best = result.tried[result.best];
  if (result.best == 0)
    print_paragraph("The default stays: no candidate beats it by more than " +
                    figure("%.1f", 100 * result.noise) + " %. Stored in " + row.directory + '.');
  else
    print_paragraph("Chosen: " + text_of(best.chosen) + ", " + figure("%.1f", 100 * (1 - best.ratio)) +
                    " % less time than the default (noise " + figure("%.1f", 100 * result.noise) +
                    " %). Stored in " + row.directory + '.');
}

Json json_of(const std::string& template_name, const TunedRow& row, bool dry) {
  const TuneResult& result = row.result;
  const bool done = !dry && result.error.empty() && !result.interrupted;
  Json out{{"template", template_name},
           {"params", json_of(result.fixed)},
           {"arch", row.arch},
           {"device", row.device.empty() ? Json(nullptr) : Json(row.device)},
           {"sizes", result.sizes},
           {"candidates", Json::array()},
           {"refused", Json::array()},
           {"checked", result.checked},
           {"chosen", done ? json_of(result.tried[result.best].chosen) : Json(nullptr)},
           {"ratio", done ? Json(result.tried[result.best].ratio) : Json(nullptr)},
           {"noise", done ? Json(result.noise) : Json(nullptr)},
           {"key", done ? Json(result.key.key.hex()) : Json(nullptr)},
           {"directory", row.directory.empty() ? Json(nullptr) : Json(row.directory)},
           {"interrupted", result.interrupted},
           {"wrong", result.error.empty() ? Json(nullptr) : Json(result.error)}};
  for (const TriedCandidate& tried : result.tried)
    out["candidates"].push_back({{"params", json_of(tried.chosen)},
                                 {"us", tried.us},
                                 {"ratio", tried.ratio > 0 ? Json(tried.ratio) : Json(nullptr)},
                                 {"bits_equal", tried.us.empty() ? Json(nullptr) : Json(tried.bits_equal)},
                                 {"registers", tried.registers},
                                 {"spill_bytes", tried.spill_bytes},
                                 {"dropped", tried.dropped.empty() ? Json(nullptr) : Json(tried.dropped)}});
  for (const auto& [candidate, why] : result.refused)
    out["refused"].push_back({{"candidate", candidate}, {"why", why}});
  return out;
}

void print_choices(const std::vector<StoredChoice>& choices, const std::string& directory) {
  if (choices.empty())
    return print_paragraph("No tuned choices in " + directory +
                           " and its layers. 'kiln tune' makes them, on a GPU.");
  using Fit = Table::Fit;
  Table table({{"KEY"},
               {"TEMPLATE"},
               {"PARAMETERS", Fit::flexible},
               {"ARCH"},
               {"DEVICE"},
               {"CHOSEN", Fit::flexible},
               {"RATIO", Fit::right}});
  std::vector<Key> keys;
  for (const StoredChoice& stored : choices) keys.push_back(stored.key);
  const KeyNames names(std::move(keys));
  for (const StoredChoice& stored : choices) {
    const compile::TunedChoice& c = stored.choice;
    double sum = 0;
    for (const auto& timing : c.timings) sum += std::log(timing.us / timing.default_us);
    table.add(
        {names.of(stored.key), c.template_name, text_of(c.fixed), c.arch, c.device, text_of(c.chosen),
         c.timings.empty() ? "-" : figure("%.3f", std::exp(sum / static_cast<double>(c.timings.size())))});
  }
  table.print();
  print_paragraph(counted(choices.size(), "tuned choice") + ", in " + directory + " and its layers",
                  Style::dim);
}

}  // namespace kiln::cli
