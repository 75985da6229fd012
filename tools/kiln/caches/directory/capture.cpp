// kiln caches capture: stores a directory of another JIT compiler.
#include "tools/kiln/caches/directory/capture.hpp"

#include "tools/kiln/caches/directory/push.hpp"
#include "tools/kiln/caches/directory/record.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/interrupt.hpp"

namespace kiln::cli {
namespace {

struct CaptureArguments : TargetArguments {
  bool full = false, push = false;
};

int capture(Context& context, const CaptureArguments& arguments) {
  const auto tier = arguments.push ? writable_tier(context) : nullptr;
  const Target target = target_of(arguments, context);
  const CapturedTarget done = capture_target(target, arguments.full, context.service());
  std::optional<Pushed> pushed;
  const PoliteInterrupt interrupt;
  if (tier) pushed = push_captured(target, done.tree, *tier, context.config(), context.json);
  if (pushed) warn_of(pushed->fault, *tier);
  const int status = PoliteInterrupt::requested()      ? kInterrupted
                     : pushed && !pushed->covers_all() ? kPartly
                                                       : kDone;
  if (context.json) {
    Json out = json_of(context, target);
    out["files"] = done.tree.files();
    out["bytes"] = done.tree.bytes();
    out["read"] = done.read;
    out["stored"] = done.stored;
    out["stored_bytes"] = done.stored_bytes;
    out["changed"] = done.changed;
    out["skipped"] = done.skipped;
    out["warnings"] = done.warnings;
    if (pushed) out["tier"] = json_of(*pushed);
    print_json(out);
    return status;
  }
  for (const std::string& warning : done.warnings) std::fprintf(stderr, "kiln: %s\n", warning.c_str());
  print_paragraph("Captured " + counted(done.tree.files(), "file") + ", " + human_bytes(done.tree.bytes()) +
                  ", of " + target.root + (done.changed ? "" : ", which has not changed since"));
  print_paragraph(counted(done.stored, "file") + ", " + human_bytes(done.stored_bytes) + ", were new",
                  Style::dim);
  if (pushed) print_paragraph(text_of(*pushed));
  return status;
}

}  // namespace

void add_caches_capture(Command app, Context& context) {
  const auto arguments = std::make_shared<CaptureArguments>();
  const Command sub = context.add_command(app, "capture", "Store the cache directory of a JIT compiler",
                                          [&context, arguments] { return capture(context, *arguments); });
  add_target_arguments(sub, *arguments);
  sub.flag("--full", arguments->full,
           "Read every file, also files with the size and time of the last capture,\nand store files again "
           "whose stored bytes are damaged");
  sub.flag("--push", arguments->push, "Write the directory to the fleet's tier, too");
  sub.footer(
      "NAME is a profile: it says where the directory is, which files count, and what they depend on.\n"
      "Profiles are TOML files in KILN_CACHES_PROFILES, ~/.config/kiln/profiles and share/kiln/profiles.\n"
      "Each file is stored once, however many directories have it. A file that changes while it is read is\n"
      "read again, or left out with a warning.\n"
      "A directory without a profile depends on the machine, its GPUs and the driver.\n"
      "With --push, the record is written to the tier once the tier has every file of it. Entries are "
      "signed\n"
      "with KILN_REMOTE_SIGN, whatever KILN_REMOTE_MODE says.\n"
      "Exit status: 0 done, 1 failed, 2 usage or no tier, 3 the tier lacks some of it,\n"
      "130 interrupted.\n"
      "Example: kiln caches capture flashinfer");
}

}  // namespace kiln::cli
