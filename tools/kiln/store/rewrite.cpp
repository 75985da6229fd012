#include "tools/kiln/store/rewrite.hpp"

#include <cstdint>

#include "cache/place/directory.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/store/gate_holder.hpp"

namespace kiln::cli {

void add_wait_flag(Command sub, double& seconds) {
  sub.option("--wait", seconds, "Longest wait for other writers; default: 30")
      .type_name("SECONDS")
      .range(0.0, 86400.0);
}

cache::Rewritten rewrite_store(const runtime::Config& config, const StorePlace& place, double wait_s,
                               const Rewrite& rewrite) {
  cache::check_own_store(place.directory);
  cache::StoreOptions options;
  options.directory = place.directory;
  options.cap_bytes = config.cache_max_bytes();
  const auto store = cache::Store::open(options);
  const auto deadline =
      base::Deadline::after(std::chrono::milliseconds(static_cast<std::int64_t>(wait_s * 1000)));
  try {
    return rewrite(*store, deadline);
  } catch (const Error& error) {
    const std::string holders =
        deadline.passed() ? writers_at_gate(place.directory + "/v1/data.mdb") : std::string();
    if (holders.empty()) throw;
    throw Error(error.code(), error.what() + ("; held by " + holders));
  }
}

int report_nothing_there(const Context& context, const StorePlace& place) {
  if (context.json)
    print_json(json_of(context, place, {}));
  else
    print_paragraph("Nothing to do: nothing is cached in " + place.directory + " yet.");
  return kDone;
}

Json json_of(const Context& context, const StorePlace& place, const cache::Rewritten& done) {
  return {{"schema", context.schema()},
          {"directory", place.directory},
          {"there", place.there},
          {"kept", done.kept},
          {"dropped", done.dropped},
          {"damaged", done.damaged},
          {"bytes_before", done.bytes_before},
          {"bytes_after", done.bytes_after}};
}

}  // namespace kiln::cli
