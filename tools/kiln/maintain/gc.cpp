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
                  std::to_string(done.dropped) + " of those not used for longest, and " +
                  std::to_string(done.damaged) + " damaged.");
  print_paragraph("The file was " + human_bytes(done.bytes_before) + " and is " +
                      human_bytes(done.bytes_after) + ", in " + place.directory,
                  Style::dim);
  return kDone;
}

}  // namespace

void add_gc(Command app, Context& context) {
  const auto wait_s = std::make_shared<double>(30);
  const Command sub =
      context.add_command(app, "gc", "Shrink the cache: drop the least recently used and the damaged",
                          [&context, wait_s] { return gc(context, *wait_s); });
  sub.option("--max-size", context.max_size,
             "Keep at most so many bytes of entries, with K, M, G or T as powers of 1024;\n"
             "default: nine tenths of KILN_CACHE_MAX_SIZE")
      .type_name("BYTES");
  add_wait_flag(sub, *wait_s);
  sub.footer(
      "Safe beside running engines: the file is written anew and replaces the old one at once. They\n"
      "follow to the new file with their next read; kernels that they have loaded stay loaded; their\n"
      "puts wait, or are skipped and counted. The old file's space returns when the last of them has\n"
      "let it go, at most a minute later. Also removes a damaged file that was set aside.\n"
      "'kiln clear' drops everything.\n"
      "Exit status: 0 done or nothing there, 1 failed, 2 usage.");
}

}  // namespace kiln::cli
