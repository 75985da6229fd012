#include "tools/kiln/store/lifetime_counters.hpp"

#include <algorithm>

#include "cache/store/tally.hpp"
#include "runtime/state/lifetime.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kCounterIndent = 16;

/// "12 disk, 3 memory": the counters that are not zero.
std::string group_text(const Json& group) {
  std::string out;
  for (const auto& [name, value] : group.items()) {
    if (value == 0) continue;
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    out += (out.empty() ? "" : ", ") + std::to_string(value.get<std::uint64_t>()) + ' ' + words;
  }
  return out.empty() ? "none" : out;
}

void in_milliseconds(Json& out, const char* us, const char* ms) {
  out[ms] = static_cast<double>(out[us].get<std::uint64_t>()) / 1000;
  out.erase(us);
}

}  // namespace

std::vector<std::uint64_t> read_lifetime(const std::string& directory) {
  return cache::Tally(directory + "/v1").read();
}

Json lifetime_json(const std::vector<std::uint64_t>& values) {
  Json out = Json::object();
  const auto counters = runtime::lifetime_counters();
  for (std::size_t i = 0; i < counters.size(); ++i)
    (*counters[i].group ? out[counters[i].group] : out)[counters[i].name] = values[i];
  in_milliseconds(out, "compile_us", "compile_ms");
  in_milliseconds(out, "saved_us", "compile_saved_ms");
  return out;
}

void print_lifetime(const std::string& heading, const Json& lifetime) {
  const auto number = [&](const char* name) { return lifetime.at(name).get<std::uint64_t>(); };
  print_heading(heading);
  for (const char* group : {"hits", "misses", "puts"})
    print_definition(group, group_text(lifetime.at(group)), kCounterIndent);
  print_definition("compiles",
                   std::to_string(number("compiles")) + " in " +
                       human_ms(lifetime.at("compile_ms").get<double>()) + ", " +
                       std::to_string(number("compile_failures")) + " failed",
                   kCounterIndent);
  print_definition("saved",
                   human_ms(lifetime.at("compile_saved_ms").get<double>()) +
                       " of compile time, by stored records and by compiles of other callers",
                   kCounterIndent);
  print_definition("waits", counted(number("waits"), "call") + " waited for the compile of another caller",
                   kCounterIndent);
  const auto any = [&](const char* group) {
    const Json& counts = lifetime.at(group);
    return std::any_of(counts.begin(), counts.end(), [](const Json& count) { return count != 0; });
  };
  if (any("remote_misses") || any("remote_rejected") || any("remote_puts") || any("remote")) {
    print_definition("tier misses", group_text(lifetime.at("remote_misses")), kCounterIndent);
    if (any("remote_rejected"))
      print_definition("tier rejected", group_text(lifetime.at("remote_rejected")), kCounterIndent);
    print_definition("tier puts", group_text(lifetime.at("remote_puts")), kCounterIndent);
    print_definition("tier leases", group_text(lifetime.at("remote")), kCounterIndent);
  }
  print_definition("evictions", counted(number("evictions"), "entry", "entries") + " removed to make room",
                   kCounterIndent);
}

}  // namespace kiln::cli
