// kiln bundle verify: checks the format, the digests, every entry and the signature. Needs no cache.
#include "tools/kiln/bundle/verify.hpp"

#include <cstdint>

#include "base/deadline.hpp"
#include "tools/kiln/bundle/input.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/cli/progress.hpp"
#include "tools/kiln/store/bundled_entry.hpp"

namespace kiln::cli {
namespace {

int verify(const Context& context, const BundleFlags& flags) try {
  const PoliteInterrupt interrupt;
  const auto start = base::Clock::now();
  OpenBundle bundle(flags);
  std::uint64_t other_version = 0, image_bytes = 0;
  {
    std::optional<Progress> progress;
    if (bundle.size_known()) progress.emplace(100, !context.json);
    while (const auto entry = bundle.next()) {
      if (PoliteInterrupt::requested()) return kInterrupted;
      image_bytes += entry->image.size();
      other_version += check_entry(*entry).other_version;
      if (progress) progress->reached(bundle.percent());
    }
  }
  const bundle::Summary& summary = bundle.summary();
  const double seconds = std::chrono::duration<double>(base::Clock::now() - start).count();
  if (context.json) {
    print_json({{"schema", context.schema()},
                {"file", flags.file},
                {"ok", true},
                {"entries", summary.entries},
                {"other_version", other_version},
                {"content_bytes", summary.content_bytes},
                {"image_bytes", image_bytes},
                {"content_digest", summary.digest.hex()},
                {"signature", json_of(bundle.signature())},
                {"seconds", seconds}});
    return kDone;
  }
  print_paragraph(counted(summary.entries, "entry", "entries") + " intact, " +
                  human_bytes(summary.content_bytes) + " decompressed, in " + name_of_bundle(flags.file));
  print_paragraph("Content blake2b:" + summary.digest.hex());
  if (other_version > 0)
    print_paragraph(counted(other_version, "entry is", "entries are") +
                    " of another version of kiln: an import skips them.");
  print_paragraph(text_of(bundle.signature()));
  print_paragraph("Read in " + human_ms(seconds * 1000) + '.', Style::dim);
  return kDone;
} catch (const Interrupted&) {
  return kInterrupted;
} catch (const Error&) {
  return report(context, fault_of_current(name_of_bundle(flags.file)));
}

}  // namespace

void add_bundle_verify(Command bundle, Context& context) {
  const auto flags = std::make_shared<BundleFlags>();
  const Command sub = context.add_command(bundle, "verify", "Check a bundle's format, digests and signature",
                                          [&context, flags] { return verify(context, *flags); });
  add_bundle_flags(sub, *flags);
  sub.footer(
      "Neither reads nor writes a cache. The digests detect damage; only a signature detects a bundle that\n"
      "somebody has changed on purpose.\n"
      "Exit status: 0 intact (and signed, with --require-signature), 1 cannot be read, 2 usage,\n"
      "4 damaged or a bad signature.");
}

}  // namespace kiln::cli
