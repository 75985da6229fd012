#include "tools/kiln/store/choices.hpp"

#include <algorithm>
#include <ctime>
#include <map>

#include "base/wire.hpp"

namespace kiln::cli {

std::vector<StoredChoice> read_choices(const SearchedStores& searched, const KeyName& name) {
  std::map<Key, StoredChoice> found;
  for (const auto& store : searched.stores)
    store->list(name.first(), name.last(), [&](const cache::Entry& entry) {
      if (!compile::is_choice(entry.facts) || !name.names(entry.key) || found.contains(entry.key)) return;
      try {
        found.emplace(entry.key,
                      StoredChoice{entry.key, compile::decode_choice(entry.facts), store->directory(),
                                   entry.stored_bytes, entry.last_used_s, entry.uses});
      } catch (const base::Malformed&) {  // written by another version of kiln
      }
    });
  std::vector<StoredChoice> out;
  for (auto& [key, choice] : found) out.push_back(std::move(choice));
  std::stable_sort(out.begin(), out.end(), [](const StoredChoice& a, const StoredChoice& b) {
    const auto place = [](const StoredChoice& s) {
      return std::tuple(s.choice.template_name, s.choice.arch, s.choice.device, text_of(s.choice.fixed));
    };
    return place(a) < place(b);
  });
  return out;
}

std::string text_of(const compile::TunedChoice::Timing& timing) {
  char text[96];
  std::snprintf(text, sizeof text, ": %.2f us, %.3f of the default", timing.us,
                timing.default_us > 0 ? timing.us / timing.default_us : 0.0);
  return (timing.arguments.empty() ? "at the manifest's sizes" : timing.arguments) + text;
}

Json json_of(const StoredChoice& stored) {
  const compile::TunedChoice& c = stored.choice;
  Json out{{"key", stored.key.hex()},
           {"template", c.template_name},
           {"params", json_of(c.fixed)},
           {"arch", c.arch},
           {"device", c.device},
           {"chosen", json_of(c.chosen)},
           {"timings", Json::array()},
           {"candidates", c.candidates},
           {"kiln", c.kiln_version},
           {"created", c.created_s},
           {"directory", stored.directory},
           {"last_used", stored.last_used_s},
           {"uses", stored.uses}};
  for (const auto& t : c.timings)
    out["timings"].push_back({{"arguments", t.arguments}, {"us", t.us}, {"default_us", t.default_us}});
  return out;
}

void print_choice(const StoredChoice& stored) {
  const compile::TunedChoice& c = stored.choice;
  constexpr std::size_t indent = 13;
  print(paint(c.template_name, Style::bold, standard_output()) + " tuned for " + c.arch + " on " + c.device +
        '\n');
  print_definition("key", stored.key.hex(), indent);
  print_definition("params", text_of(c.fixed), indent);
  print_definition("chosen", text_of(c.chosen) + ", of " + counted(c.candidates, "candidate"), indent);
  bool first = true;
  for (const auto& timing : c.timings) {
    print_definition(first ? "measured" : "", text_of(timing), indent);
    first = false;
  }
  print_definition(
      "made",
      "by kiln " + c.kiln_version + ", " +
          (c.created_s > 0 ? human_age(std::time(nullptr) - c.created_s) + " ago" : "time not known"),
      indent);
  print_definition("in", stored.directory, indent);
}

}  // namespace kiln::cli
