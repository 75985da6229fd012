// kiln show: everything about one cached entry.
#include "tools/kiln/inspect/show.hpp"

#include <unistd.h>

#include <cstdint>
#include <ctime>

#include "compile/key/key.hpp"
#include "tools/kiln/cli/catalog.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/limits_report.hpp"
#include "tools/kiln/cli/outcome.hpp"
#include "tools/kiln/inspect/launch_shape.hpp"
#include "tools/kiln/inspect/todays_ptx.hpp"
#include "tools/kiln/store/choices.hpp"
#include "tools/kiln/store/disassemble.hpp"
#include "tools/kiln/store/entries.hpp"
#include "tools/kiln/store/key/fields.hpp"

namespace kiln::cli {
namespace {

struct ShowArguments {
  std::string key, toolchain, image;
  bool full = false, sass = false, ptx = false, log = false;
};

std::string date_of(std::int64_t seconds) {
  char text[32];
  std::tm local{};
  const std::time_t time = seconds;
  if (!::localtime_r(&time, &local)) return std::to_string(seconds);
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return std::string(text) + " (" + human_age(std::time(nullptr) - seconds) + " ago)";
}

/// "6: 8 8 8 4 4 4 bytes"
std::string arguments_of(const compile::Facts& f) {
  if (f.arguments.empty()) return "none";
  std::string out = std::to_string(f.arguments.size()) + ':';
  for (const compile::ArgumentFact& argument : f.arguments) out += ' ' + std::to_string(argument.size);
  return out + " bytes";
}

void print_entry(const StoredEntry& entry, const cache::Record& record, const LaunchShape& shape,
                 const std::vector<compile::BrokenLimit>& broken, bool full) {
  const compile::Facts& f = entry.facts;
  constexpr std::size_t indent = 13;
  print(paint(f.unit, Style::bold, standard_output()) + " for " + f.arch + '\n');
  print_definition("key", entry.key.hex(), indent);
  print_definition("params", text_of(f.parameters), indent);
  print_definition("resources", resources_of(f), indent);
  print_definition("occupancy", occupancy_text(f, shape), indent);
  if (f.required_block[0]) {
    print_definition("block",
                     std::to_string(f.required_block[0]) + " x " + std::to_string(f.required_block[1]) +
                         " x " + std::to_string(f.required_block[2]) + " threads, and no other",
                     indent);
  }
  print_definition("arguments", arguments_of(f), indent);
  print_symbols(f, indent);
  print_definition("sizes",
                   human_bytes(entry.cubin_bytes) + " image, " + human_bytes(entry.stored_bytes) + " stored",
                   indent);
  print_definition("compile", phases_of(f), indent);
  print_definition("created", date_of(f.created_s), indent);
  if (entry.last_used_s)
    print_definition("last used",
                     date_of(static_cast<std::int64_t>(entry.last_used_s)) + ", " +
                         counted(entry.uses, "use") + " or more",
                     indent);
  print_definition("symbol", f.lowered_name, indent);
  print_limits(f, broken, indent);
  print("\n");
  print_heading("What the key is made of");
  print_key_fields(record.key_text, full);
}

/// Shows the tuned choice that `name` matches; returns false when there is none. Throws when the name matches
/// an image's key, too: a longer key tells the two apart.
bool show_choice(const Context& context, const ShowArguments& arguments, const SearchedStores& searched,
                 const KeyName& name) {
  const std::vector<StoredChoice> found = read_choices(searched, name);
  if (found.empty()) return false;
  if (found.size() > 1)
    throw Error(Errc::invalid_argument, counted(found.size(), "key") + " of tuned choices begin with " +
                                            name.quoted() + " (see 'kiln tune --list')");
  try {
    find_entry(searched, name);
    throw Error(Errc::invalid_argument,
                "keys of an image and of a tuned choice begin with " + name.quoted() + "; give more digits");
  } catch (const Error& error) {
    if (error.code() != Errc::io) throw;  // no image matches
  }
  if (arguments.sass || arguments.ptx || arguments.log || !arguments.image.empty())
    throw Error(Errc::invalid_argument, name.quoted() + " is a tuned choice, which has no image and no log");
  if (context.json)
    print_json(Json{{"schema", context.schema()}, {"choice", json_of(found.front())}});
  else
    print_choice(found.front());
  return true;
}

int show(Context& context, const ShowArguments& arguments) {
  const bool image_to_stdout = arguments.image == "-";
  if (arguments.sass + arguments.ptx + arguments.log + image_to_stdout > (context.json ? 0 : 1)) {
    throw Error(Errc::invalid_argument,
                context.json
                    ? "--json cannot be combined with --sass, --ptx, --log or --image -: the log is in the "
                      "object"
                    : "--sass, --ptx, --log and --image - all write to stdout: choose one");
  }
  if (image_to_stdout && ::isatty(STDOUT_FILENO))
    throw Error(Errc::invalid_argument, "a cubin is not written to a terminal; use --image FILE");
  const runtime::Config config = context.config();
  const SearchedStores searched = searched_stores(config);
  const KeyName name(arguments.key, arguments.toolchain);
  if (show_choice(context, arguments, searched, name)) return kDone;
  const auto [entry, record] = read_found(searched, name, [](cache::Store& store, const Key& key) {
    return store.peek(key, base::Deadline::after(std::chrono::seconds(10)));
  });
  source::Catalog catalog = catalog_of(config.template_directories());
  const LaunchShape shape = launch_shape(catalog, entry.facts);
  const auto broken = broken_today(catalog, entry.facts);
  if (!arguments.image.empty()) write_output(arguments.image, record.image);
  if (arguments.sass) {
    const std::string& home = config.get("cuda_home");
    print(disassemble(record.image, toolchain::locate_toolkit({home, !config.hermetic()}), home));
  } else if (arguments.ptx) {
    print(todays_ptx(context.service(), entry.key, entry.facts, record.key_text));
  } else if (arguments.log) {
    print_foreign(entry.facts.log.empty() ? ""
                                          : entry.facts.log + (entry.facts.log.back() == '\n' ? "" : "\n"));
  } else if (context.json) {
    Json out{{"schema", context.schema()}};
    out.update(json_of(entry));
    add_details(out, entry.facts, record.key_text);
    out["occupancy"] = occupancy_json(entry.facts, shape);
    out["limits_broken"] = broken ? limits_json(*broken) : Json(nullptr);
    print_json(out);
  } else if (arguments.image.empty()) {
    print_entry(entry, record, shape, broken.value_or(std::vector<compile::BrokenLimit>()), arguments.full);
  } else if (arguments.image != "-") {
    print("wrote " + human_bytes(record.image.size()) + " to " + arguments.image + '\n');
  }
  return kDone;
}

}  // namespace

void add_show(Command app, Context& context) {
  const auto arguments = std::make_shared<ShowArguments>();
  const Command sub = context.add_command(app, "show", "Show everything about one cached entry",
                                          [&context, arguments] { return show(context, *arguments); });
  sub.option("key", arguments->key,
             "Key of the entry: enough first digits to be unique, or as 'kiln ls' shows it")
      .type_name("KEY")
      .required();
  sub.option("--toolchain", arguments->toolchain,
             "Show the entry of this toolchain: first digits of the key's second half")
      .not_empty()
      .type_name("HEX");
  sub.flag("--full", arguments->full, "Show every field of the key, also toolkit headers");
  sub.flag("--sass", arguments->sass, "Print the machine code (needs nvdisasm or cuobjdump)");
  sub.flag("--ptx", arguments->ptx, "Print PTX, compiled again if today's sources give the same key");
  sub.flag("--log", arguments->log, "Print the compiler's log");
  sub.option("--image", arguments->image, "Write the cubin to FILE; - is stdout").type_name("FILE");
  sub.footer(
      "7ca0631d9df0-b743 names an entry by the first digits of both halves of its key: the specialisation\n"
      "and the toolchain.\n"
      "Exit status: 4 when the entry or the file is damaged (see 'kiln verify').");
}

}  // namespace kiln::cli
