// kiln diff: the differences between two cached entries.
#include "tools/kiln/inspect/diff.hpp"

#include <cstdint>
#include "tools/kiln/cli/table.hpp"
#include "tools/kiln/store/key/sentences.hpp"

#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/outcome.hpp"
#include "tools/kiln/store/entries.hpp"
#include "tools/kiln/store/key/difference.hpp"

namespace kiln::cli {
namespace {

struct DiffArguments {
  std::string first, second;
};

/// One of the two entries: its head, and the key text that its image was made under.
struct Side {
  StoredEntry entry;
  std::string key_text;
};

Side read_side(const SearchedStores& searched, const std::string& name) {
  auto [entry, text] = read_found(searched, KeyName(name), [](cache::Store& store, const Key& key) {
    return store.peek_text(key, base::Deadline::after(std::chrono::seconds(10)));
  });
  return {std::move(entry), std::move(text.key_text)};
}

/// A result of both compiles, with a function that prints it.
struct Figure {
  const char* name;
  double first, second;
  std::string (*shown)(double);
};
std::string as_number(double value) { return std::to_string(static_cast<std::int64_t>(value)); }
std::string as_bytes(double value) { return human_bytes(static_cast<std::uint64_t>(value)); }

std::vector<Figure> figures_of(const StoredEntry& a, const StoredEntry& b) {
  const compile::Facts &f = a.facts, &g = b.facts;
  const auto spills = [](const compile::Facts& facts) {
    return static_cast<double>(facts.spill_store_bytes) + facts.spill_load_bytes;
  };
  return {
      {"registers", static_cast<double>(f.registers), static_cast<double>(g.registers), as_number},
      {"spill_bytes", spills(f), spills(g), as_bytes},
      {"shared_bytes", static_cast<double>(f.shared_bytes), static_cast<double>(g.shared_bytes), as_bytes},
      {"stack_bytes", static_cast<double>(f.stack_bytes), static_cast<double>(g.stack_bytes), as_bytes},
      {"max_threads", static_cast<double>(f.max_threads), static_cast<double>(g.max_threads), as_number},
      {"cubin_bytes", static_cast<double>(a.cubin_bytes), static_cast<double>(b.cubin_bytes), as_bytes},
      {"compile_ms", f.compile_ms, g.compile_ms, human_ms}};
}

std::string label_of(const Figure& figure) {
  std::string out = figure.name;
  for (const std::string_view unit : {"_bytes", "_ms"})
    if (out.ends_with(unit)) out.erase(out.size() - unit.size());
  for (char& c : out)
    if (c == '_') c = ' ';
  return out == "cubin" ? "image" : out;
}

/// Names the key among all keys of a store. The name always has a toolchain half, even where that
/// is not needed.
std::string name_of(const KeyNames& names, const Key& key) {
  const std::string name = names.of(key);
  return name.find('-') == std::string::npos ? short_name(key) : name;
}

void print_sides(const Side& first, const Side& second, const std::vector<KeyDifference>& differences) {
  constexpr std::size_t indent = 13;
  const KeyNames names({first.entry.key, second.entry.key});
  for (const auto& [name, side] : {std::pair("first", &first), std::pair("second", &second)}) {
    print_definition(name,
                     name_of(names, side->entry.key) + "  " + side->entry.facts.specialization().to_string() +
                         " for " + side->entry.facts.arch,
                     indent);
  }
  print("\n");
  if (differences.empty()) return print("The keys are the same.\n");
  print_heading("The keys differ");
  for (const std::string& line :
       sentences(differences, {"in the first", "in the second", first.entry.facts.compiler_version,
                               second.entry.facts.compiler_version}))
    print_definition("", line, 2);
  Table table({{"RESOURCE"}, {"FIRST", Table::Fit::right}, {"SECOND", Table::Fit::right}});
  for (const Figure& figure : figures_of(first.entry, second.entry)) {
    if (figure.first == figure.second) continue;
    table.add({label_of(figure), figure.shown(figure.first), figure.shown(figure.second)});
  }
  print("\n");
  table.print();
}

Json json_of_differences(const Side& first, const Side& second,
                         const std::vector<KeyDifference>& differences) {
  Json out;
  out["first"] = json_of(first.entry), out["second"] = json_of(second.entry);
  out["same_key"] = differences.empty();
  out["differs"] = Json::array();
  const Sides sides{"in the first", "in the second", first.entry.facts.compiler_version,
                    second.entry.facts.compiler_version};
  for (const KeyDifference& d : differences)
    out["differs"].push_back({{"field", d.field},
                              {"name", d.name},
                              {"first", d.one ? Json(*d.one) : Json(nullptr)},
                              {"second", d.other ? Json(*d.other) : Json(nullptr)},
                              {"says", sentence(d, sides)}});
  out["resources"] = Json::object();
  for (const Figure& figure : figures_of(first.entry, second.entry))
    out["resources"][figure.name] = {{"first", figure.first}, {"second", figure.second}};
  return out;
}

int diff(const Context& context, const DiffArguments& arguments) {
  const SearchedStores searched = searched_stores(context.config());
  const Side first = read_side(searched, arguments.first);
  const Side second = read_side(searched, arguments.second);
  const auto differences = key_differences(first.key_text, second.key_text);
  if (context.json) {
    Json out{{"schema", context.schema()}};
    out.update(json_of_differences(first, second, differences));
    print_json(out);
  } else {
    print_sides(first, second, differences);
  }
  return kDone;
}

}  // namespace

void add_diff(Command app, Context& context) {
  const auto arguments = std::make_shared<DiffArguments>();
  const Command sub = context.add_command(app, "diff", "Show what differs between two cached entries",
                                          [&context, arguments] { return diff(context, *arguments); });
  sub.option("first", arguments->first,
             "Key of the first entry: enough first digits to be unique, or as 'kiln ls' shows it")
      .type_name("KEY")
      .required();
  sub.option("second", arguments->second, "Key of the second entry").type_name("KEY").required();
  sub.footer(
      "Compares the two keys field by field, and then the resources of the two kernels.\n"
      "To compare entries of two toolchains, give digits of both halves of their keys:\n"
      "kiln diff 7ca0631d9df0-b743 7ca0631d9df0-e10f\n"
      "Exit status: 0 whether the entries differ or not.");
}

}  // namespace kiln::cli
