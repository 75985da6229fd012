// kiln caches: its subcommands.
#include "tools/kiln/caches/caches.hpp"

#include "tools/kiln/caches/directory/capture.hpp"
#include "tools/kiln/caches/directory/restore.hpp"
#include "tools/kiln/caches/directory/why.hpp"
#include "tools/kiln/caches/space/clear.hpp"
#include "tools/kiln/caches/space/ls.hpp"
#include "tools/kiln/caches/space/stats.hpp"

namespace kiln::cli {

void add_caches(Command app, Context& context) {
  const Command caches = app.subcommand("caches", "Show and keep the caches of other JIT compilers");
  caches.require_subcommand();
  add_caches_ls(caches, context);
  add_caches_stats(caches, context);
  add_caches_clear(caches, context);
  add_caches_capture(caches, context);
  add_caches_restore(caches, context);
  add_caches_why(caches, context);
  caches.footer(
      "A blob is a record of another JIT compiler in kiln's store, and a space has the blobs of one "
      "compiler.\n"
      "docs/guide/other-jits.md explains how compilers get there.");
}

}  // namespace kiln::cli
