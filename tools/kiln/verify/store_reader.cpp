#include "tools/kiln/verify/store_reader.hpp"

#include <sys/stat.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

#include "base/wire.hpp"
#include "cache/store/file/pages.hpp"
#include "cache/store/store.hpp"
#include "compile/key/facts.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {
namespace {

void say(const Json& line) {
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// Adds names to the damaged entries whose heads can be read. `list` ends where the file is damaged.
void name_entries(cache::Store& store, std::map<std::string, Json>& damaged) {
  try {
    store.list([&](const cache::Entry& entry) {
      const auto found = damaged.find(entry.key.hex());
      if (found == damaged.end()) return;
      try {
        const compile::Facts facts = compile::decode_facts(entry.facts);
        found->second["template"] = facts.unit;
        found->second["params"] = json_of(facts.parameters);
        found->second["arch"] = facts.arch;
      } catch (const base::Malformed&) {  // written by another version of kiln
      }
    });
  } catch (const Error&) {
  }
}

void verify(const std::string& directory) {
  cache::StoreOptions options;
  options.directory = directory, options.access = cache::Access::read_only;
  std::shared_ptr<cache::Store> store;
  try {
    store = cache::Store::open(options);
  } catch (const cache::Damaged& damage) {  // the file has not even a valid meta page
    struct stat st {};
    ::stat((directory + "/v1/data.mdb").c_str(), &st);
    say({{"damaged", {{"key", ""}, {"what", damage.what()}}}});
    return say({{"verified", {{"entries", 0}, {"bytes", st.st_size}}}});
  }
  try {
    say({{"total", store->stats().entries}});
  } catch (const cache::Damaged&) {  // `verify` reports the damage below
  }
  const cache::Verified result = store->verify([](std::uint64_t done) { say({{"done", done}}); });
  std::map<std::string, Json> entries;
  for (const cache::DamageReport& damage : result.damaged) {
    const Json what = {{"key", damage.key}, {"what", damage.what}};
    if (damage.key.empty())
      say({{"damaged", what}});
    else
      entries[damage.key] = what;
  }
  if (!entries.empty()) name_entries(*store, entries);
  for (const auto& [key, what] : entries) say({{"damaged", what}});
  say({{"verified", {{"entries", result.entries}, {"bytes", result.bytes}}}});
}

int read_store_for_parent(const std::string& directory) noexcept try {
  try {
    verify(directory);
  } catch (const std::exception& error) {
    say({{"error", error.what()}});
  }
  return 0;
} catch (...) {  // no memory to report the error
  return 1;
}

}  // namespace

void add_store_reader(Command, Context& context) {
  context.add_hidden_command(kStoreReaderCommand, 1, [](const std::vector<std::string>& words) {
    return read_store_for_parent(words.front());
  });
}

}  // namespace kiln::cli
