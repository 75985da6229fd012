// kiln stats: how much is cached, and what it saves.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "commands.hpp"
#include "context.hpp"
#include "entries.hpp"
#include "runtime/lifetime.hpp"

namespace kiln::cli {
namespace {

struct Sum {
  std::uint64_t entries = 0, cubin_bytes = 0, stored_bytes = 0;
  double compile_ms = 0;

  void add(const StoredEntry& e) {
    ++entries;
    cubin_bytes += e.cubin_bytes;
    stored_bytes += e.stored_bytes;
    compile_ms += e.facts.compile_ms;
  }
};

using Groups = std::map<std::string, Sum, bool (*)(const std::string&, const std::string&)>;

Json json_of(const Groups& groups) {
  Json out = Json::object();
  for (const auto& [name, sum] : groups) {
    out[name] = {{"entries", sum.entries},
                 {"cubin_bytes", sum.cubin_bytes},
                 {"stored_bytes", sum.stored_bytes},
                 {"compile_ms", sum.compile_ms}};
  }
  return out;
}

void print_groups(const std::string& title, const Groups& groups) {
  using Fit = Table::Fit;
  Table table({{title},
               {"ENTRIES", Fit::right},
               {"IMAGES", Fit::right},
               {"STORED", Fit::right},
               {"COMPILE TIME", Fit::right}});
  for (const auto& [name, sum] : groups) {
    table.add({name, std::to_string(sum.entries), human_bytes(sum.cubin_bytes), human_bytes(sum.stored_bytes),
               human_ms(sum.compile_ms)});
  }
  print("\n");
  table.print();
}

/// The store's lifetime counters, by runtime::lifetime_counters; groups are objects.
Json lifetime_json(const std::vector<std::uint64_t>& values) {
  Json out = Json::object();
  const auto counters = runtime::lifetime_counters();
  for (std::size_t i = 0; i < counters.size(); ++i)
    (*counters[i].group ? out[counters[i].group] : out)[counters[i].name] = values[i];
  out["compile_ms"] = static_cast<double>(out["compile_us"].get<std::uint64_t>()) / 1000;
  out.erase("compile_us");
  return out;
}

/// "12 disk, 3 memory": those that are not zero.
std::string lifetime_text(const Json& lifetime, const char* group) {
  std::string out;
  for (const auto& [name, value] : lifetime.at(group).items()) {
    if (value == 0) continue;
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    out += (out.empty() ? "" : ", ") + std::to_string(value.get<std::uint64_t>()) + ' ' + words;
  }
  return out.empty() ? "none" : out;
}

void print_lifetime(const Json& lifetime) {
  const auto number = [&](const char* name) { return lifetime.at(name).get<std::uint64_t>(); };
  print("\n");
  print_heading("Since the store was made");
  for (const char* group : {"hits", "misses", "puts"})
    print_definition(group, lifetime_text(lifetime, group), 16);
  print_definition("compiles",
                   std::to_string(number("compiles")) + " in " +
                       human_ms(lifetime.at("compile_ms").get<double>()) + ", " +
                       std::to_string(number("compile_failures")) + " failed",
                   16);
  print_definition("waits", counted(number("waits"), "kernel") + " made by another asker meanwhile", 16);
}

int show_stats(const Context& context) {
  const runtime::Config config = context.config();
  const StoreView view = view_store(config);
  std::vector<std::string> damaged;
  Groups templates([](const std::string&a, const std::string&b) { return a < b; }), archs(&arch_less);
  Sum all;
  cache::StoreStats store;
  const Json lifetime = lifetime_json(cache::Tally(view.directory + "/v1").read());
  store.cap_bytes = config.cache_max_bytes();
  if (view.store) {
    store = view.store->stats();
    for (const StoredEntry& e : read_entries(*view.store, &damaged)) {
      all.add(e);
      templates[e.facts.unit].add(e);
      archs[e.facts.arch].add(e);
    }
  }
  if (context.json) {
    Json out({{"schema", context.schema()},
              {"directory", view.directory},
              {"entries", store.entries},
              {"cubin_bytes", all.cubin_bytes},
              {"cap_bytes", store.cap_bytes},
              {"live_bytes", store.live_bytes},
              {"file_bytes", store.file_bytes},
              {"compile_ms", all.compile_ms},
              {"lifetime", lifetime},
              {"by_template", json_of(templates)},
              {"by_arch", json_of(archs)}});
    if (!damaged.empty()) out["error"] = {{"code", "damaged"}, {"message", damaged_text(damaged)}};
    print_json(out);
    return exit_of(damaged);
  }
  if (store.entries == 0) {
    print_paragraph(empty_store_text(view));
    return kDone;
  }
  print_definition("directory", view.directory, 16);
  print_definition("entries", std::to_string(store.entries), 16);
  print_definition("images", human_bytes(all.cubin_bytes), 16);
  print_definition("on disk",
                   human_bytes(store.live_bytes) + " live in a file of " + human_bytes(store.file_bytes) +
                       ", which may grow to " + human_bytes(store.cap_bytes) + " (KILN_CACHE_MAX_SIZE)",
                   16);
  print_definition("saves", human_ms(all.compile_ms) + " of compile time per full warm start", 16);
  if (!damaged.empty()) print_definition("damaged", damaged_text(damaged), 16);
  if (store.entries > all.entries + damaged.size()) {
    print_definition("unreadable",
                     counted(store.entries - all.entries - damaged.size(), "entry", "entries") +
                         " of another version of kiln; compiled again when asked for",
                     16);
  }
  print_lifetime(lifetime);
  print_groups("TEMPLATE", templates);
  print_groups("ARCH", archs);
  return exit_of(damaged);
}

}  // namespace

void add_stats(CLI::App& app, Context& context) {
  context.add_command(app, "stats", "How much is cached, and the compile time it saves",
                      [&context] { return show_stats(context); });
}

}  // namespace kiln::cli
