// kiln caches restore: writes a captured directory.
#include "tools/kiln/caches/directory/restore.hpp"

#include "tools/kiln/caches/directory/record.hpp"
#include "tools/kiln/cli/context.hpp"

namespace kiln::cli {
namespace {

struct RestoreArguments : TargetArguments, RestoreChoice {};

int restore(Context& context, const RestoreArguments& arguments) {
  const Target target = target_of(arguments, context);
  const RestoredTarget done = restore_target(target, arguments, context.service());
  const bool found = done.missing.empty();
  if (context.json) {
    Json out = json_of(context, target);
    out["found"] = found;
    if (!found) {
      out["reason"] = done.missing;
    } else {
      out["files"] = done.tree->files();
      out["bytes"] = done.tree->bytes();
      out["written"] = done.written;
      out["equal"] = done.equal;
      out["kept"] = done.kept;
      out["warnings"] = done.warnings;
    }
    print_json(out);
    return found ? kDone : kPartly;
  }
  if (!found) {
    print_paragraph("Restored nothing of " + text_of(target) + ": " + done.missing +
                    ". 'kiln caches why' compares the facts.");
    return kPartly;
  }
  for (const std::string& warning : done.warnings) std::fprintf(stderr, "kiln: %s\n", warning.c_str());
  print_paragraph("Restored " + counted(done.written, "file") + " of " + std::to_string(done.tree->files()) +
                  ", " + human_bytes(done.tree->bytes()) + ", in " + target.root);
  if (done.equal + done.kept > 0)
    print_paragraph(std::to_string(done.equal) + " were there, and " + std::to_string(done.kept) +
                        " others stay as they are",
                    Style::dim);
  return kDone;
}

}  // namespace

void add_caches_restore(Command app, Context& context) {
  const auto arguments = std::make_shared<RestoreArguments>();
  const Command sub = context.add_command(app, "restore", "Write a directory that was captured",
                                          [&context, arguments] { return restore(context, *arguments); });
  add_target_arguments(sub, *arguments);
  sub.option("--to", arguments->to, "Write to this directory").type_name("DIR").not_empty();
  sub.flag("--copy", arguments->copy, "Write every file; neither hard links nor clones");
  sub.flag("--force", arguments->force, "Replace files that differ from the record");
  sub.flag("--full", arguments->full, "Compare the bytes of files whose size and time are equal");
  sub.footer(
      "The directory is found only with the facts that it was captured with; 'kiln caches why' compares "
      "them.\n"
      "Every file is fetched and verified first. When one is missing, nothing is written.\n"
      "Files that are there already and equal stay. Files that differ stay, too, without --force.\n"
      "Exit status: 0 done, 1 failed, 2 usage, 3 not found.\n"
      "Example: kiln caches restore flashinfer");
}

}  // namespace kiln::cli
