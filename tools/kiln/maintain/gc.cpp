// kiln gc: reduces disk use. Removes entries over a limit, damage, free pages and a damaged file set aside.
#include "tools/kiln/maintain/gc.hpp"

#include <cstdint>

#include "base/text.hpp"
#include "tools/kiln/store/rewrite.hpp"

namespace kiln::cli {
namespace {

int gc(const Context& context, double wait_s) {
  const runtime::Config config = context.config();
  const StorePlace place = find_store(config);
  if (!place.there) return report_nothing_there(context, place);
  // The store itself keeps nine tenths of the cap live. A size from the command line is used as given.
  const std::uint64_t bytes =
      context.max_size.empty() ? config.cache_max_bytes() / 10 * 9 : config.cache_max_bytes();
  const cache::Rewritten done = rewrite_store(
      config, place, wait_s,
      [bytes](cache::Store& store, base::Deadline deadline) { return store.gc(bytes, deadline); });
  if (context.json) {
    Json out = json_of(context, place, done);
    out["max_bytes"] = bytes;
    print_json(out);
    return kDone;
  }
  print_paragraph("Kept " + counted(done.kept, "entry", "entries") + ", dropped " +
                  std::to_string(done.dropped) + " least recently used and " + std::to_string(done.damaged) +
                  " damaged.");
  print_paragraph("The file was " + human_bytes(done.bytes_before) + " and is " +
                      human_bytes(done.bytes_after) + ", in " + place.directory,
                  Style::dim);
  return kDone;
}

}  // namespace

void add_gc(Command app, Context& context) {
  const auto wait_s = std::make_shared<double>(30);
  const Command sub =
      context.add_command(app, "gc", "Shrink the cache: drop the least recently used and damaged entries",
                          [&context, wait_s] { return gc(context, *wait_s); });
  sub.option("--max-size", context.max_size,
             "Most bytes of entries to keep; K, M, G or T are powers of 1024;\n"
             "default: nine tenths of KILN_CACHE_MAX_SIZE")
      .type_name("BYTES");
  add_wait_flag(sub, *wait_s);
  sub.footer(
      "Safe beside running engines: a new file is written and replaces the old one at once. Engines use the\n"
      "new file from their next read on, and kernels that they have loaded stay loaded. Meanwhile their "
      "puts\n"
      "wait, or are skipped and counted. The old file's space is free again when the last engine has closed\n"
      "it, at most a minute later. A damaged file that was set aside is removed, too.\n"
      "'kiln clear' drops all entries.\n"
      "Exit status: 0 done or nothing there, 1 failed, 2 usage.");
}

}  // namespace kiln::cli
