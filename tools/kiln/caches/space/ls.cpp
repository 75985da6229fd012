// kiln caches ls: lists the spaces of blobs, or the blobs of one space.
#include "tools/kiln/caches/space/ls.hpp"

#include "base/quote.hpp"
#include "base/text.hpp"
#include "tools/kiln/caches/space/blobs.hpp"
#include "tools/kiln/cli/context.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kShownKey = 60;  // characters

/// The blobs of one space and compatibility, together.
struct Group {
  std::string space, compatibility;
  std::uint64_t blobs = 0, stored_bytes = 0, content_bytes = 0, last_used_s = 0;
};

/// REQUIRES: blobs are sorted as scan_blobs sorts them.
std::vector<Group> groups_of(const std::vector<StoredBlob>& blobs) {
  std::vector<Group> out;
  for (const StoredBlob& blob : blobs) {
    if (out.empty() || out.back().space != blob.space || out.back().compatibility != blob.compatibility) {
      out.emplace_back();
      out.back().space = blob.space, out.back().compatibility = blob.compatibility;
    }
    Group& group = out.back();
    ++group.blobs;
    group.stored_bytes += blob.stored_bytes, group.content_bytes += blob.content_bytes;
    group.last_used_s = std::max(group.last_used_s, blob.last_used_s);
  }
  return out;
}

int list_spaces(const Context& context, const BlobScan& scan) {
  const std::vector<Group> groups = groups_of(scan.blobs);
  if (context.json) {
    Json out{{"schema", context.schema()}, {"directory", scan.directory}, {"spaces", Json::array()}};
    for (const Group& group : groups)
      out["spaces"].push_back({{"space", group.space},
                               {"compatibility", group.compatibility},
                               {"blobs", group.blobs},
                               {"stored_bytes", group.stored_bytes},
                               {"content_bytes", group.content_bytes},
                               {"last_used", group.last_used_s}});
    print_json(out);
    return exit_of(scan);
  }
  if (groups.empty()) {
    print_paragraph("No JIT compiler keeps blobs in " + scan.directory + " or a layer yet.");
    return exit_of(scan);
  }
  using Fit = Table::Fit;
  Table table({{"SPACE"},
               {"COMPATIBILITY", Fit::flexible},
               {"BLOBS", Fit::right},
               {"STORED", Fit::right},
               {"CONTENT", Fit::right},
               {"LAST USED", Fit::right}});
  for (const Group& group : groups)
    table.add({group.space, one_line(group.compatibility), std::to_string(group.blobs),
               human_bytes(group.stored_bytes), human_bytes(group.content_bytes), age_of(group.last_used_s)});
  table.print();
  return exit_of(scan);
}

int list_blobs(const Context& context, const BlobScan& scan, const NamedBlobs& named) {
  if (context.json) {
    Json out{{"schema", context.schema()}, {"directory", scan.directory}, {"space", named.space}};
    out["blobs"] = Json::array();
    for (const StoredBlob& blob : scan.blobs)
      if (named.has(blob))
        out["blobs"].push_back({{"key", blob.key},
                                {"key_hex", base::hex(blob.key)},
                                {"compatibility", blob.compatibility},
                                {"content_bytes", blob.content_bytes},
                                {"stored_bytes", blob.stored_bytes},
                                {"last_used", blob.last_used_s},
                                {"uses", blob.uses},
                                {"directory", blob.directory}});
    print_json(out);
    return exit_of(scan);
  }
  using Fit = Table::Fit;
  Table table({{"KEY"},
               {"SIZE", Fit::right},
               {"STORED", Fit::right},
               {"COMPATIBILITY", Fit::flexible},
               {"LAST USED", Fit::right},
               {"DIRECTORY"}});
  for (const StoredBlob& blob : scan.blobs)
    if (named.has(blob))
      table.add({base::quote(blob.key, kShownKey), human_bytes(blob.content_bytes),
                 human_bytes(blob.stored_bytes), one_line(blob.compatibility), age_of(blob.last_used_s),
                 blob.directory});
  table.print();
  return exit_of(scan);
}

int list(const Context& context, const std::string& name) {
  const BlobScan scan = scan_blobs(context.config());
  return name.empty() ? list_spaces(context, scan) : list_blobs(context, scan, blobs_named(scan, name));
}

}  // namespace

void add_caches_ls(Command app, Context& context) {
  const auto space = std::make_shared<std::string>();
  const Command sub = context.add_command(app, "ls", "List the spaces of blobs, or the blobs of one space",
                                          [&context, space] { return list(context, *space); });
  sub.option("space", *space, "List the blobs of this space; also the name of a captured directory")
      .type_name("SPACE|NAME");
  sub.footer(
      "A space has the blobs of one compiler. The compatibility says what they depend on beside their keys.\n"
      "Layers are listed, too. A blob that several stores have is listed once, with the store that serves "
      "it.\n"
      "The last use is up to an hour old.\n"
      "Exit status: 0 done, 1 failed, 2 usage or no such space, 4 records are damaged.\n"
      "Example: kiln caches ls triton");
}

}  // namespace kiln::cli
