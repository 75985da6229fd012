// kiln ls: what is cached.
#include <CLI/CLI.hpp>
#include <ctime>

#include "commands.hpp"
#include "context.hpp"
#include "entries.hpp"
#include "spelling.hpp"

namespace kiln::cli {
namespace {

struct Arguments {
  std::string only;
  bool full = false;
};

constexpr std::size_t kUsesColumns = 100;  // narrower terminals keep their lines for the parameters

int list(const Context& context, const Arguments& arguments) {
  const runtime::Config config = context.config();
  const StoreView view = view_store(config);
  std::vector<StoredEntry> entries;
  std::vector<std::string> damaged;
  if (view.store) entries = read_entries(*view.store, &damaged);
  const bool empty = entries.empty() && damaged.empty();
  if (!arguments.only.empty())
    std::erase_if(entries, [&](const StoredEntry& e) { return e.template_name() != arguments.only; });
  std::uint64_t cubin_bytes = 0, stored_bytes = 0;
  for (const StoredEntry& e : entries) cubin_bytes += e.cubin_bytes, stored_bytes += e.stored_bytes;

  if (context.json) {
    Json out{{"schema", context.schema()}, {"directory", view.directory},  {"count", entries.size()},
             {"cubin_bytes", cubin_bytes}, {"stored_bytes", stored_bytes}, {"entries", Json::array()}};
    for (const StoredEntry& e : entries) out["entries"].push_back(json_of(e));
    if (!damaged.empty()) out["error"] = {{"code", "damaged"}, {"message", damaged_text(damaged)}};
    print_json(out);
    return exit_of(damaged);
  }
  if (empty) {
    print_paragraph(empty_store_text(view));
    return kDone;
  }
  using Fit = Table::Fit;
  const std::size_t width = standard_output().width;
  const bool with_uses = width == 0 || width >= kUsesColumns;
  std::vector<Table::Column> columns = {{"KEY"},  {"TEMPLATE"},         {"PARAMETERS", Fit::flexible},
                                        {"ARCH"}, {"SIZE", Fit::right}, {"AGE", Fit::right}};
  if (with_uses) columns.insert(columns.end(), {{"LAST USED", Fit::right}, {"USES", Fit::right}});
  Table table(columns);
  const std::int64_t now = std::time(nullptr);
  Spelling spelling(config);
  for (const StoredEntry& e : entries) {
    const auto& f = e.facts;
    std::vector<std::string> row = {
        e.key.hex().substr(0, 12),
        f.unit,
        arguments.full ? text_of(f.parameters) : spelling.shortest(e.template_name(), f.parameters, f.arch),
        f.arch,
        human_bytes(e.cubin_bytes),
        human_age(now - f.created_s)};
    if (with_uses) {
      row.push_back(e.last_used_s ? human_age(now - static_cast<std::int64_t>(e.last_used_s)) : "-");
      row.push_back(std::to_string(e.uses));
    }
    table.add(std::move(row));
  }
  if (!entries.empty()) table.print();
  const std::string what = arguments.only.empty() ? "" : " of " + arguments.only;
  print_paragraph(counted(entries.size(), "entry", "entries") + what + ", " + human_bytes(stored_bytes) +
                      ", in " + view.directory,
                  Style::dim);
  return exit_of(damaged);
}

}  // namespace

void add_ls(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* sub = context.add_command(app, "ls", "List what is cached",
                                      [&context, arguments] { return list(context, *arguments); });
  sub->add_option("-t,--template", arguments->only, "Only entries of this template")->type_name("NAME");
  sub->add_flag("--full", arguments->full, "Every parameter, also those with their default value");
  sub->footer(
      "Parameters are shown as one would type them: those with their default value are left out.\n"
      "Uses are written lazily: at least so many, and not more than an hour late.\n"
      "Exit status: 4 when entries or the file are damaged (see 'kiln verify').");
}

}  // namespace kiln::cli
