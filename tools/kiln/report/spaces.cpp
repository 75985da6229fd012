#include "tools/kiln/report/spaces.hpp"

#include "tools/kiln/report/table.hpp"

namespace kiln::cli {
namespace {

std::vector<Cell> row_of(const SpaceView& space) {
  const auto count = [&](const char* name) { return count_cell(space.counts.at(name)); };
  Cell rate = text_cell(space.hit_rate());
  return {text_cell(space.space),
          count_cell(space.blobs),
          bytes_cell(space.stored_bytes),
          bytes_cell(space.content_bytes),
          count_cell(space.compatibilities),
          count("hits"),
          count("misses"),
          std::move(rate),
          count("remote_hits"),
          count("puts"),
          count("waits"),
          count("wait_timeouts"),
          bytes_cell(space.counts.at("bytes_read")),
          bytes_cell(space.counts.at("bytes_written")),
          count("evictions"),
          count("puts_skipped"),
          count("damaged"),
          count("sealed_misses")};
}

}  // namespace

std::string spaces_html(const ReportData& data) {
  if (data.spaces.empty())
    return "<p class=\"empty\">No other JIT compiler has used this store. 'kiln wrap -- COMMAND' lets "
           "it.</p>\n";
  std::vector<std::vector<Cell>> rows;
  for (const SpaceView& space : data.spaces) rows.push_back(row_of(space));
  return table_html("Spaces of other JIT compilers",
                    {{"Space"},
                     {"Blobs", true},
                     {"Stored", true},
                     {"Content", true},
                     {"Compatibilities", true},
                     {"Hits", true},
                     {"Misses", true},
                     {"Hit rate", true},
                     {"Hits in the tier", true},
                     {"Puts", true},
                     {"Waits", true},
                     {"Waits that timed out", true},
                     {"Read", true},
                     {"Written", true},
                     {"Evicted", true},
                     {"Not stored", true},
                     {"Damaged", true},
                     {"Missed after the seal", true}},
                    rows);
}

}  // namespace kiln::cli
