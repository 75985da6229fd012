// kiln ls: lists the cached entries.
#include "tools/kiln/inspect/ls.hpp"
#include "tools/kiln/cli/table.hpp"

#include <cstdint>
#include <ctime>
#include <functional>

#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/inspect/listing.hpp"
#include "tools/kiln/store/entries.hpp"
#include "tools/kiln/store/spelling.hpp"

namespace kiln::cli {
namespace {

using Order = ListingRequest::Order;

struct LsArguments {
  std::string sort = "template";
  ListingRequest request;
  bool full = false;
};

/// A column of the table. It is left out when the terminal is narrower than `least_width`.
struct Column {
  Table::Column head;
  std::size_t least_width;  ///< of the terminal, in columns
  std::function<std::string(const StoredEntry&)> cell;
};

constexpr std::size_t kUsesColumns = 100, kSizeColumns = 64, kArchColumns = 52, kDigits = 12, kFewDigits = 8,
                      kFewLetters = 12;

std::vector<Column> columns_for(std::size_t width, Order order, Spelling* spelling,
                                const std::vector<StoredEntry>& entries) {
  using Fit = Table::Fit;
  const std::int64_t now = std::time(nullptr);
  const bool narrow = width > 0 && width < kArchColumns;
  const std::size_t unit = narrow ? kFewLetters : SIZE_MAX;
  const auto names = std::make_shared<KeyNames>(names_of(entries, narrow ? kFewDigits : kDigits));
  // The column that the list is sorted by is always shown.
  const auto unless = [&](Order by, std::size_t least) { return order == by ? 0 : least; };
  std::vector<Column> all = {
      {{"KEY"}, 0, [=](const StoredEntry& e) { return names->of(e.key); }},
      {{"TEMPLATE"}, 0, [=](const StoredEntry& e) { return clipped(e.facts.unit, unit); }},
      {{"PARAMETERS", Fit::flexible},
       0,
       [=](const StoredEntry& e) {
         return spelling ? spelling->shortest(e.template_name(), e.facts.parameters, e.facts.arch)
                         : text_of(e.facts.parameters);
       }},
      {{"ARCH"}, kArchColumns, [](const StoredEntry& e) { return e.facts.arch; }},
      {{"SIZE", Fit::right},
       unless(Order::size, kSizeColumns),
       [](const StoredEntry& e) { return human_bytes(e.cubin_bytes); }},
      {{"AGE", Fit::right},
       unless(Order::age, kSizeColumns),
       [=](const StoredEntry& e) { return human_age(now - e.facts.created_s); }},
      {{"COMPILE", Fit::right},
       order == Order::compile_time ? 0 : SIZE_MAX,
       [](const StoredEntry& e) { return e.facts.compile_ms > 0 ? human_ms(e.facts.compile_ms) : "-"; }},
      {{"LAST USED", Fit::right},
       kUsesColumns,
       [=](const StoredEntry& e) {
         return e.last_used_s ? human_age(now - static_cast<std::int64_t>(e.last_used_s)) : "-";
       }},
      {{"USES", Fit::right},
       unless(Order::uses, kUsesColumns),
       [](const StoredEntry& e) { return std::to_string(e.uses); }},
  };
  std::erase_if(all, [&](const Column& c) {
    return c.least_width == SIZE_MAX || (width > 0 && width < c.least_width);
  });
  return all;
}

/// `entries` are all entries of the store; a shown key's name is unique among them.
void print_table(const Listing& listing, const std::vector<StoredEntry>& entries,
                 const LsArguments& arguments, Spelling& spelling) {
  const auto columns = columns_for(standard_output().width, arguments.request.order,
                                   arguments.full ? nullptr : &spelling, entries);
  std::vector<Table::Column> heads;
  for (const Column& column : columns) heads.push_back(column.head);
  Table table(heads);
  for (const StoredEntry* entry : listing.shown) {
    std::vector<std::string> row;
    row.reserve(columns.size());
    for (const Column& column : columns) row.push_back(column.cell(*entry));
    table.add(std::move(row));
  }
  table.print();
}

/// "4 entries, 12 KiB, in DIR". When some are not shown, it says how many there are.
std::string footer(const Listing& listing, const LsArguments& arguments, const std::string& directory) {
  const ListedSum &matching = listing.matching, &all = listing.all;
  const std::string& only = arguments.request.template_name;
  std::string out = counted(listing.shown.size(), "entry", "entries") + (only.empty() ? "" : " of " + only);
  if (listing.shown.size() < matching.count)
    out += " of the " + std::to_string(matching.count) + " that match";
  out += ", " + human_bytes(matching.stored_bytes);
  if (matching.count < all.count)
    out += " (of " + counted(all.count, "entry", "entries") + ", " + human_bytes(all.stored_bytes) + ")";
  return out + ", in " + directory;
}

Json json_of(const Listing& listing, const LsArguments& arguments, const std::string& directory) {
  const ListingRequest& request = arguments.request;
  Json out{{"directory", directory},
           {"count", listing.shown.size()},
           {"cubin_bytes", listing.matching.cubin_bytes},
           {"stored_bytes", listing.matching.stored_bytes}};
  out["matching"] = listing.matching.count;
  out["all"] = {{"count", listing.all.count},
                {"cubin_bytes", listing.all.cubin_bytes},
                {"stored_bytes", listing.all.stored_bytes}};
  out["filters"] = {{"template", request.template_name.empty() ? Json(nullptr) : Json(request.template_name)},
                    {"archs", request.archs},
                    {"params", request.values},
                    {"sort", name_of(request.order)},
                    {"reverse", request.reverse},
                    {"limit", request.limit ? Json(request.limit) : Json(nullptr)}};
  out["entries"] = Json::array();
  for (const StoredEntry* e : listing.shown) out["entries"].push_back(json_of(*e));
  return out;
}

int list(const Context& context, LsArguments arguments) {
  arguments.request.order = parse_order(arguments.sort);
  for (const base::Arch arch : archs_named(context.arch)) arguments.request.archs.push_back(arch.name());
  const runtime::Config config = context.config();
  const StoreView view = view_store(config);
  std::vector<StoredEntry> entries;
  std::vector<std::string> damaged;
  OtherRecords others;
  if (view.store) entries = read_entries(*view.store, &damaged, &others);
  const std::string& wanted = arguments.request.template_name;
  if (!wanted.empty() && damaged.empty()) check_template(wanted, entries, config);
  const Listing listing = choose(entries, arguments.request);
  if (context.json) {
    Json out{{"schema", context.schema()}};
    out.update(json_of(listing, arguments, view.directory));
    if (!damaged.empty()) out["error"] = {{"code", "damaged"}, {"message", damaged_text(damaged)}};
    print_json(out);
    return exit_of(damaged);
  }
  if (entries.empty() && damaged.empty() && others.choices + others.blobs > 0) {
    print_paragraph(
        "No kernel is cached in " + view.directory + " yet, only " +
        (others.choices ? counted(others.choices, "tuned choice") + " (see 'kiln tune --list')" : "") +
        (others.choices && others.blobs ? " and " : "") +
        (others.blobs ? counted(others.blobs, "record") + " of other JIT compilers" : "") + '.');
    return kDone;
  }
  if (entries.empty() && damaged.empty()) {
    print_paragraph(empty_store_text(view, config));
    return kDone;
  }
  Spelling spelling(config);
  if (!listing.shown.empty()) print_table(listing, entries, arguments, spelling);
  print_paragraph(footer(listing, arguments, view.directory), Style::dim);
  return exit_of(damaged);
}

}  // namespace

void add_ls(Command app, Context& context) {
  const auto arguments = std::make_shared<LsArguments>();
  const Command sub = context.add_command(app, "ls", "List the cached entries",
                                          [&context, arguments] { return list(context, *arguments); });
  sub.option("params", arguments->request.values, "Only entries whose parameters have these values")
      .type_name("P=V");
  sub.option("-t,--template", arguments->request.template_name, "Only entries of this template")
      .type_name("NAME");
  sub.option("--sort", arguments->sort, "Order of the entries; default: template")
      .type_name("template|size|age|uses|compile-time");
  sub.flag("--reverse", arguments->request.reverse, "Reverse the order");
  sub.option("-n,--limit", arguments->request.limit, "List at most N entries")
      .type_name("N")
      .range(1, 1'000'000'000);
  sub.flag("--full", arguments->full, "Show every parameter, also parameters with their default value");
  sub.footer(
      "--sort size, age, uses or compile-time lists the largest, newest, most used or slowest entries "
      "first.\n"
      "--arch A,B lists only entries for these archs. -t lists a template's reference, too.\n"
      "Parameters are shown as a user types them: parameters with their default value are left out.\n"
      "Keys are shortened to digits that are unique. When several toolchains compiled a specialisation,\n"
      "digits of the key's second half follow, as in 7ca0631d9df0-b743.\n"
      "The number of uses is a lower bound, because uses are written up to an hour late.\n"
      "Entries that another process removes while the list is read are left out.\n"
      "Exit status: 2 for a template that is neither installed nor cached, 4 when entries or the file are "
      "damaged (see 'kiln verify').\n"
      "Example: kiln ls H=4096 --arch sm_90a --sort size -n 10");
}

}  // namespace kiln::cli
