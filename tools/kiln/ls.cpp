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

int list(const Context& context, const Arguments& arguments) {
  const runtime::Config config = context.config();
  const StoreView view = view_store(config);
  std::vector<StoredEntry> entries;
  if (view.store) entries = read_entries(*view.store);
  const bool empty = entries.empty();
  if (!arguments.only.empty())
    std::erase_if(entries, [&](const StoredEntry& e) { return e.template_name() != arguments.only; });
  std::uint64_t cubin_bytes = 0, stored_bytes = 0;
  for (const StoredEntry& e : entries) cubin_bytes += e.cubin_bytes, stored_bytes += e.stored_bytes;

  if (context.json) {
    Json out{{"schema", context.schema()}, {"directory", view.directory},  {"count", entries.size()},
             {"cubin_bytes", cubin_bytes}, {"stored_bytes", stored_bytes}, {"entries", Json::array()}};
    for (const StoredEntry& e : entries) out["entries"].push_back(json_of(e));
    print_json(out);
    return kDone;
  }
  if (empty) {
    print_paragraph(empty_store_text(view));
    return kDone;
  }
  using Fit = Table::Fit;
  Table table({{"KEY"},
               {"TEMPLATE"},
               {"PARAMETERS", Fit::flexible},
               {"ARCH"},
               {"SIZE", Fit::right},
               {"AGE", Fit::right}});
  const std::int64_t now = std::time(nullptr);
  Spelling spelling(config);
  for (const StoredEntry& e : entries) {
    const auto& f = e.facts;
    table.add(
        {e.key.hex().substr(0, 12), f.unit,
         arguments.full ? text_of(f.parameters) : spelling.shortest(e.template_name(), f.parameters, f.arch),
         f.arch, human_bytes(e.cubin_bytes), human_age(now - f.created_s)});
  }
  if (!entries.empty()) table.print();
  const std::string what = arguments.only.empty() ? "" : " of " + arguments.only;
  print_paragraph(counted(entries.size(), "entry", "entries") + what + ", " + human_bytes(stored_bytes) +
                      ", in " + view.directory,
                  Style::dim);
  return kDone;
}

}  // namespace

void add_ls(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* sub = context.add_command(app, "ls", "List what is cached",
                                      [&context, arguments] { return list(context, *arguments); });
  sub->add_option("-t,--template", arguments->only, "Only entries of this template")->type_name("NAME");
  sub->add_flag("--full", arguments->full, "Every parameter, also those with their default value");
  sub->footer("Parameters are shown as one would type them: those with their default value are left out.");
}

}  // namespace kiln::cli
