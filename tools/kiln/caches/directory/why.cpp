// kiln caches why: whether a restore would find a directory, and what differs.
#include "tools/kiln/caches/directory/why.hpp"

#include <map>
#include <set>

#include "base/text.hpp"
#include "base/wire.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/caches/directory/target.hpp"
#include "tools/kiln/caches/space/blobs.hpp"
#include "tools/kiln/caches/tree/listing.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/store/bundle_stores.hpp"

namespace kiln::cli {
namespace {

/// The state of the record of a directory.
struct Answer {
  bool found = false;
  std::string reason;
  std::uint64_t files = 0, bytes = 0, missing = 0;
  std::optional<std::vector<FactDifference>> nearest;
};

/// The list of files under exactly this name. Nothing, with a reason, when it is not there.
std::optional<Tree> read_list(const cache::BlobName& name, BundleStores& stores, std::string& reason) {
  const auto record = stores.record(cache::blob_key(name).key);
  if (!record) {
    reason = record.miss == cache::Miss::absent ? "no store has a record of it for these facts"
                                                : "its record cannot be read; see 'kiln verify'";
    return std::nullopt;
  }
  try {
    const cache::BlobFacts facts = cache::decode_blob(record->facts);
    const auto content = cache::piece_of(facts, {{}, record->image});
    if (content && facts.parts == 0) return decode_tree(content->view);
  } catch (const base::Malformed&) {
  }
  reason = "its record is of another version of kiln, or damaged";
  return std::nullopt;
}

Answer answer_of(const Target& target, const runtime::Config& config) {
  Answer out;
  BundleStores stores(config);
  const auto tree = read_list(target.record, stores, out.reason);
  if (tree) {
    std::set<std::string> there;
    for (const StoredBlob& blob : scan_blobs(config, kFileSpace).blobs)
      if (blob.whole) there.insert(blob.key);
    out.files = tree->files(), out.bytes = tree->bytes();
    for (const TreeEntry& entry : tree->entries)
      out.missing += entry.is_file() && !there.contains(entry.digest.hex());
    out.found = out.missing == 0;
    if (!out.found) out.reason = counted(out.missing, "file") + " of it are in no store any more";
    return out;
  }
  for (const StoredBlob& blob : scan_blobs(config, target.record.space).blobs) {
    if (blob.key != target.record.key) continue;
    auto other = differences(facts_in(blob.compatibility), target.facts);
    if (!out.nearest || other.size() < out.nearest->size()) out.nearest = std::move(other);
  }
  return out;
}

int print_answer(const Context& context, const Target& target, const Answer& answer) {
  if (context.json) {
    Json out = json_of(context, target);
    out["found"] = answer.found;
    if (!answer.found) out["reason"] = answer.reason;
    if (answer.files > 0 || answer.found) {
      out["files"] = answer.files, out["bytes"] = answer.bytes, out["missing"] = answer.missing;
    } else {
      out["nearest"] = nullptr;
    }
    const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
    if (answer.nearest) {
      out["nearest"] = {{"differences", Json::array()}};
      for (const FactDifference& d : *answer.nearest)
        out["nearest"]["differences"].push_back(
            {{"fact", d.fact}, {"recorded", or_null(d.recorded)}, {"now", or_null(d.now)}});
    }
    print_json(out);
    return answer.found ? kDone : kPartly;
  }
  if (answer.found) {
    print_paragraph("A restore of " + text_of(target) + " finds " + counted(answer.files, "file") + ", " +
                    human_bytes(answer.bytes) + (target.root.empty() ? "" : ", for " + target.root) +
                    ". They are listed in a store; only a restore verifies their bytes.");
    return kDone;
  }
  print_paragraph("A restore of " + text_of(target) + " finds nothing: " + answer.reason + '.');
  if (!answer.nearest) {
    if (answer.files == 0)
      print_paragraph("It was never captured here under the name '" + target.record.key +
                      "'. 'kiln caches capture' after a run stores it.");
    return kPartly;
  }
  Table table({{"FACT"}, {"RECORDED", Table::Fit::flexible}, {"NOW", Table::Fit::flexible}});
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  for (const FactDifference& d : *answer.nearest)
    table.add({one_line(d.fact), or_dash(one_line(d.recorded)), or_dash(one_line(d.now))});
  table.print();
  return kPartly;
}

int print_space(const Context& context, const BlobScan& scan, const std::string& space) {
  std::map<std::string, std::uint64_t> counts;
  for (const StoredBlob& blob : scan.blobs)
    if (blob.space == space) ++counts[blob.compatibility];
  if (context.json) {
    Json out{{"schema", context.schema()}, {"space", space}, {"compatibilities", Json::array()}};
    for (const auto& [compatibility, blobs] : counts)
      out["compatibilities"].push_back({{"compatibility", compatibility}, {"blobs", blobs}});
    print_json(out);
    return exit_of(scan);
  }
  print_paragraph("Space " + space + " serves a process only with one of these compatibilities:");
  Table table({{"BLOBS", Table::Fit::right}, {"COMPATIBILITY", Table::Fit::flexible}});
  for (const auto& [compatibility, blobs] : counts)
    table.add({std::to_string(blobs), one_line(compatibility)});
  table.print();
  return exit_of(scan);
}

/// Throws Error(invalid_argument) that lists the names which are known.
[[noreturn]] void throw_unknown(const std::string& name, const BlobScan& scan) {
  std::set<std::string> spaces, profiles, known;
  for (const StoredBlob& blob : scan.blobs)
    (blob.space == kDirectories ? known : spaces).insert(blob.space == kDirectories ? blob.key : blob.space);
  for (const Profile& profile : all_profiles()) profiles.insert(profile.name);
  known.insert(spaces.begin(), spaces.end());
  known.insert(profiles.begin(), profiles.end());
  const auto list = [](const std::set<std::string>& names) {
    return names.empty() ? "none" : base::join({names.begin(), names.end()}, ", ");
  };
  throw Error(Errc::invalid_argument,
              "no space with blobs, no captured directory and no profile has the name '" + name + "'" +
                  base::did_you_mean(name, {known.begin(), known.end()}) +
                  "; a directory is written with a '/', as in ./" + name +
                  " (spaces with blobs: " + list(spaces) + "; profiles: " + list(profiles) + ')');
}

int why(Context& context, TargetArguments& arguments) {
  const runtime::Config config = context.config();
  if (arguments.what.find('/') == std::string::npos && arguments.to.empty() &&
      !find_profile(arguments.what)) {
    const BlobScan scan = scan_blobs(config);
    for (const StoredBlob& blob : scan.blobs)
      if (blob.space == arguments.what) return print_space(context, scan, arguments.what);
    for (const StoredBlob& blob : scan.blobs)
      arguments.is_captured |= blob.space == kDirectories && blob.key == arguments.what;
    if (!arguments.is_captured) throw_unknown(arguments.what, scan);
  }
  const Target target = target_of(arguments, context);
  return print_answer(context, target, answer_of(target, config));
}

}  // namespace

void add_caches_why(Command app, Context& context) {
  const auto arguments = std::make_shared<TargetArguments>();
  const Command sub =
      context.add_command(app, "why", "Say whether a restore would find a directory, or why not",
                          [&context, arguments] { return why(context, *arguments); });
  add_target_arguments(sub, *arguments);
  sub.option("--to", arguments->to, "Ask about a restore to this directory").type_name("DIR").not_empty();
  sub.footer(
      "Files count as found when a store lists them; only a restore verifies their bytes.\n"
      "When nothing is found, the record with the fewest other facts is compared with this machine.\n"
      "For a space of blobs, such as triton, the compatibilities of its blobs are listed.\n"
      "Exit status: 0 found, 1 failed, 2 usage, 3 not found.\n"
      "Example: kiln caches why flashinfer");
}

}  // namespace kiln::cli
