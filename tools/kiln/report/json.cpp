// The data of the page's charts.
#include "tools/kiln/report/json.hpp"
#include "tools/kiln/report/tables.hpp"

#include <cstdint>
#include <map>

#include "kiln/kiln.h"
#include "tools/kiln/report/page.hpp"
#include "tools/kiln/report/timeline.hpp"

namespace kiln::cli {
namespace {

Json groups_json(const ReportData& data) {
  Json out = Json::array();
  for (const ReportGroup& g : data.groups) {
    Json largest = Json::array();
    for (const StoredEntry* e : g.largest)
      largest.push_back({data.parameters_of(*e), e->stored_bytes, e->cubin_bytes});
    out.push_back({{"template", g.unit},
                   {"arch", g.arch},
                   {"entries", g.entries},
                   {"cubin_bytes", g.cubin_bytes},
                   {"stored_bytes", g.stored_bytes},
                   {"compile_ms", rounded(g.compile_ms)},
                   {"timed", g.timed},
                   {"largest", std::move(largest)}});
  }
  return out;
}

constexpr const char* kPhaseNames[] = {"whole", "front_end", "nvvm", "ptxas"};

Json histogram_json(const Histogram& histogram) {
  if (histogram.edges.empty()) return nullptr;
  Json out{{"edges", Json::array()}};
  for (const double edge : histogram.edges) out["edges"].push_back(rounded(edge));
  for (std::size_t i = 0; i < std::size(kPhases); ++i) {
    out[kPhaseNames[i]] = {{"median_ms", rounded(histogram.medians[i])}, {"bins", histogram.bins[i]}};
  }
  return out;
}

/// A bar is an array of numbers, because there may be thousands of bars.
Json prewarm_json(const NotedRun& run) {
  const TimeLine line = time_line_of(run);
  std::map<std::string, std::size_t> templates;
  Json names = Json::array(), bars = Json::array(), compiling = Json::array(), lanes = Json::array();
  for (const Bar& bar : line.bars) {
    const NotedTask& t = *bar.task;
    const auto [at, fresh] = templates.try_emplace(t.template_name, templates.size());
    if (fresh) names.push_back(t.template_name);
    bars.push_back({t.lane, rounded(t.start_ms), rounded(bar.end_ms), rounded(bar.compile_ms),
                    rounded(bar.frontend_ms), rounded(bar.nvvm_ms), rounded(bar.ptxas_ms), at->second,
                    bar.tasks, bar.tasks == 1 ? t.params + ' ' + t.arch : std::string(), t.outcome});
  }
  for (const double value : line.compiling) compiling.push_back(rounded(value));
  for (const Lane& lane : line.lanes) {
    lanes.push_back({{"lane", lane.number},
                     {"tasks", lane.tasks},
                     {"busy_ms", rounded(lane.busy_ms)},
                     {"compile_ms", rounded(lane.compile_ms)}});
  }
  Json out;
  out["started"] = utc_text(static_cast<std::int64_t>(run.started_ms / 1000));
  out.update(figures_json(run));
  out.update({{"left_out", run.left_out},
              {"interrupted", run.interrupted},
              {"first_ms", rounded(line.first_ms)},
              {"last_ms", rounded(line.last_ms)},
              {"templates", std::move(names)},
              {"lanes", std::move(lanes)},
              {"compiling", std::move(compiling)},
              {"bars", std::move(bars)}});
  return out;
}

}  // namespace

Json spaces_json(const ReportData& data) {
  Json out = Json::array();
  for (const SpaceView& space : data.spaces) out.push_back(json_of(space));
  return out;
}

Json report_json(const ReportData& data) {
  return {{"schema", "kiln.report-data/1"},
          {"made", data.made_s},
          {"version", kiln_version()},
          {"directory", data.directory},
          {"totals",
           {{"entries", data.store.entries},
            {"cubin_bytes", data.cubin_bytes},
            {"stored_bytes", data.stored_bytes},
            {"live_bytes", data.store.live_bytes},
            {"file_bytes", data.store.file_bytes},
            {"cap_bytes", data.store.cap_bytes},
            {"templates", data.templates.size()},
            {"archs", data.archs.size()},
            {"compile_ms", data.compile_ms},
            {"timed", data.timed},
            {"hit_rate", data.hit_rate ? Json(*data.hit_rate) : Json(nullptr)}}},
          {"groups", groups_json(data)},
          {"histogram", histogram_json(data.histogram)},
          {"lifetime", data.lifetime},
          {"spaces", spaces_json(data)},
          {"prewarm", data.prewarm.run ? prewarm_json(*data.prewarm.run) : Json(nullptr)}};
}

std::string script_text(const Json& json) {
  // `dump` escapes all non-ASCII characters, U+2028 and U+2029 included.
  const std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size() + text.size() / 16);
  for (const char c : text) {
    if (c == '<')
      out += "\\u003c";
    else if (c == '>')
      out += "\\u003e";
    else if (c == '&')
      out += "\\u0026";
    else
      out += c;
  }
  return out;
}

}  // namespace kiln::cli
