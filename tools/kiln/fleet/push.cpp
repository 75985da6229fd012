// kiln remote push: writes entries of the cache and its layers to the fleet's tier.
#include "tools/kiln/fleet/push.hpp"

#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/plan/select.hpp"
#include "tools/kiln/store/tier/transfer.hpp"

namespace kiln::cli {
namespace {

struct PushArguments {
  SelectionFlags selection;
  bool strict = false;
};

int push(Context& context, const PushArguments& arguments) {
  const PoliteInterrupt interrupt;
  const auto tier = writable_tier(context);
  BundleStores stores(context.config());
  const Selection selection = select_entries(context, arguments.selection, stores);
  const Pushed done = push_entries(
      *tier, selection.keys, [&](const Key& key) { return stores.record(key); }, context.json);
  if (context.json) {
    Json out({{"schema", context.schema()}});
    out.update(json_of(done));
    out["missing"] = selection.missing;
    out["interrupted"] = PoliteInterrupt::requested();
    print_json(out);
  } else {
    for (const std::string& missing : selection.missing) print("missing  " + missing + '\n');
    print_paragraph(text_of(done));
  }
  std::fflush(stdout);
  warn_of(done.fault, *tier);
  if (done.fault.down) return remote_down(arguments.strict, kPartly);
  if (PoliteInterrupt::requested()) return kInterrupted;
  const bool complete = arguments.selection.plans.empty() ? done.complete() : done.covers_all();
  return complete && selection.missing.empty() ? kDone : kPartly;
}

}  // namespace

void add_remote_push(Command remote, Context& context) {
  const auto arguments = std::make_shared<PushArguments>();
  const Command sub =
      context.add_command(remote, "push", "Write entries of the cache and its layers to the tier",
                          [&context, arguments] { return push(context, *arguments); });
  add_selection_options(sub, arguments->selection);
  add_strict_option(sub, arguments->strict);
  sub.footer(
      "Entries are signed with KILN_REMOTE_SIGN, whatever KILN_REMOTE_MODE says. An entry that the tier has\n"
      "intact is not written again; one that is damaged, unsigned or signed by another key is.\n"
      "A blob of more than 12 MiB is several entries of the tier.\n"
      "--arch may be a list. Tuned choices of the selected templates and archs are written, too.\n"
      "Exit status: 0 all there, 1 failed, 2 usage or no tier, 3 some are missing, 5 a server is down\n"
      "(with --strict), 130 interrupted.");
}

}  // namespace kiln::cli
