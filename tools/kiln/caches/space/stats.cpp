// kiln caches stats: the sums of the spaces, beside the kernels.
#include "tools/kiln/caches/space/stats.hpp"

#include <map>
#include <set>

#include "tools/kiln/caches/space/blobs.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/store/spaces.hpp"

namespace kiln::cli {
namespace {

struct SpaceSum {
  std::set<std::string> compatibilities;
  std::uint64_t blobs = 0, stored_bytes = 0, content_bytes = 0;
  SpaceCounts counts;  ///< empty: no process of this store has counted anything
};

std::string text_of(const SpaceSum& sum, const char* count) {
  return sum.counts.empty() ? "-" : std::to_string(sum.counts.at(count));
}

int stats(const Context& context) {
  const BlobScan scan = scan_blobs(context.config());
  std::map<std::string, SpaceSum> spaces;
  std::uint64_t total = scan.kernels.stored_bytes + scan.choices.stored_bytes;
  for (const StoredBlob& blob : scan.blobs) {
    SpaceSum& sum = spaces[blob.space];
    sum.compatibilities.insert(blob.compatibility);
    ++sum.blobs;
    sum.stored_bytes += blob.stored_bytes, sum.content_bytes += blob.content_bytes;
    total += blob.stored_bytes;
  }
  for (auto& [name, counts] : space_counts(scan.directory)) spaces[name].counts = std::move(counts);
  if (context.json) {
    const auto json_of = [](const RecordSum& sum) {
      return Json{{"count", sum.count}, {"stored_bytes", sum.stored_bytes}};
    };
    Json out{{"schema", context.schema()},
             {"directory", scan.directory},
             {"stored_bytes", total},
             {"kernels", json_of(scan.kernels)},
             {"choices", json_of(scan.choices)},
             {"other_version", scan.other_version},
             {"spaces", Json::array()}};
    for (const auto& [name, sum] : spaces) {
      out["spaces"].push_back({{"space", name},
                               {"compatibilities", sum.compatibilities.size()},
                               {"blobs", sum.blobs},
                               {"stored_bytes", sum.stored_bytes},
                               {"content_bytes", sum.content_bytes},
                               {"counts", nullptr}});
      if (!sum.counts.empty()) add_counts(out["spaces"].back()["counts"], sum.counts);
    }
    print_json(out);
    return exit_of(scan);
  }
  using Fit = Table::Fit;
  Table table({{"SPACE"},
               {"RECORDS", Fit::right},
               {"STORED", Fit::right},
               {"CONTENT", Fit::right},
               {"COMPATIBILITIES", Fit::right},
               {"HITS", Fit::right},
               {"MISSES", Fit::right},
               {"PUTS", Fit::right}});
  const auto add_other = [&](const char* what, const RecordSum& sum) {
    if (sum.count > 0)
      table.add({what, std::to_string(sum.count), human_bytes(sum.stored_bytes), "", "", "", "", ""});
  };
  add_other("(kernels)", scan.kernels);
  add_other("(tuned choices)", scan.choices);
  for (const auto& [name, sum] : spaces)
    table.add({name, std::to_string(sum.blobs), human_bytes(sum.stored_bytes), human_bytes(sum.content_bytes),
               std::to_string(sum.compatibilities.size()), text_of(sum, "hits"), text_of(sum, "misses"),
               text_of(sum, "puts")});
  table.print();
  print_paragraph(human_bytes(total) + " in " + scan.directory + " and its layers", Style::dim);
  return exit_of(scan);
}

}  // namespace

void add_caches_stats(Command app, Context& context) {
  const Command sub = context.add_command(app, "stats", "Count the blobs of every space, beside the kernels",
                                          [&context] { return stats(context); });
  sub.footer(
      "STORED is what the records take in the stores and layers, and CONTENT what the blobs have unpacked.\n"
      "HITS, MISSES and PUTS are counted by all processes since the store was made; '-': none has counted.\n"
      "'kiln stats' has the counters of kernels.\n"
      "Exit status: 0 done, 1 failed, 2 usage, 4 records are damaged.");
}

}  // namespace kiln::cli
