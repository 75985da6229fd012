// kiln clear: empties the cache.
#include "tools/kiln/maintain/clear.hpp"

#include <unistd.h>

#include <iostream>

#include "kiln/error.hpp"
#include "tools/kiln/store/rewrite.hpp"

namespace kiln::cli {
namespace {

struct ClearArguments {
  double wait_s = 30;
  bool yes = false;
};

std::string contents_of(const runtime::Config& config) {
  try {
    const cache::StoreStats stats = view_store(config).store->stats();
    return counted(stats.entries, "entry", "entries") + ", " + human_bytes(stats.file_bytes) + ',';
  } catch (const Error&) {  // a damaged store is cleared as well
    return "all entries";
  }
}

/// Asks on stderr, because stdout is for results.
bool ask(const std::string& what, const std::string& directory) {
  std::fprintf(stderr, "Remove %s from %s? [y/N] ", what.c_str(), directory.c_str());
  std::fflush(stderr);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

int clear(const Context& context, const ClearArguments& arguments) {
  const runtime::Config config = context.config();
  const StorePlace place = find_store(config);
  if (!place.there) return report_nothing_there(context, place);
  if (!arguments.yes) {
    if (!::isatty(STDIN_FILENO) || !::isatty(STDERR_FILENO))
      throw Error(Errc::invalid_argument, "clear removes everything from '" + place.directory +
                                              "' and cannot ask without a terminal; use --yes");
    if (!ask(contents_of(config), place.directory)) throw Error(Errc::io, "nothing was removed");
  }
  const cache::Rewritten done =
      rewrite_store(config, place, arguments.wait_s,
                    [](cache::Store& store, base::Deadline deadline) { return store.clear(deadline); });
  if (context.json)
    print_json(json_of(context, place, done));
  else
    print_paragraph("Removed " + counted(done.dropped + done.damaged, "entry", "entries") + ", " +
                    human_bytes(done.bytes_before) + ", from " + place.directory);
  return kDone;
}

}  // namespace

void add_clear(Command app, Context& context) {
  const auto arguments = std::make_shared<ClearArguments>();
  const Command sub = context.add_command(app, "clear", "Empty the cache",
                                          [&context, arguments] { return clear(context, *arguments); });
  sub.flag("-y,--yes", arguments->yes, "Remove without asking");
  add_wait_flag(sub, arguments->wait_s);
  sub.footer(
      "Safe beside running engines: they find an empty file at their next read and fill it again.\n"
      "Kernels that they have loaded stay loaded. Layers are not changed.\n"
      "Without --yes, clear asks first; it cannot ask without a terminal.\n"
      "Exit status: 0 done or nothing there, 1 failed or declined, 2 cannot ask.");
}

}  // namespace kiln::cli
