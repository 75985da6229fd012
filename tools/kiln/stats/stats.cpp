// kiln stats: what is cached, what it saves, and what was counted over the store's life or since a mark.
#include "tools/kiln/stats/stats.hpp"
#include "tools/kiln/cli/table.hpp"
#include "tools/kiln/stats/metrics.hpp"

#include <algorithm>
#include <cstdint>
#include <ctime>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/stats/marks.hpp"
#include "tools/kiln/stats/report.hpp"
#include "tools/kiln/store/lifetime_counters.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kIndent = 16;
constexpr const char* kDefaultMark = "last";
/// Labels that the metrics themselves use; see metrics.cpp.
constexpr std::string_view kOwnLabels[] = {"arch",   "directory", "for",      "kind",   "level",
                                           "reason", "result",    "template", "version"};

struct StatsArguments {
  std::string mark, since, prometheus;
  std::vector<std::string> labels;
  Option mark_option, since_option, prometheus_option;
};

/// The value of an option whose value may be omitted.
std::optional<std::string> given(Option option, const std::string& value, const char* without_value) {
  if (!option.given()) return std::nullopt;
  return value.empty() ? without_value : value;
}

template <class Groups>
Json json_of_sums(const Groups& groups) {
  Json out = Json::object();
  for (const auto& [name, sum] : groups) {
    out[name] = {{"entries", sum.entries},
                 {"cubin_bytes", sum.cubin_bytes},
                 {"stored_bytes", sum.stored_bytes},
                 {"compile_ms", sum.compile_ms}};
  }
  return out;
}

template <class Groups>
void print_groups(const std::string& title, const Groups& groups) {
  using Fit = Table::Fit;
  if (groups.empty()) return;
  Table table({{title, Fit::flexible},
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

std::int64_t age_of(const Mark& mark) {
  return std::max<std::int64_t>(0, static_cast<std::int64_t>(std::time(nullptr)) - mark.taken_s);
}

Json json_of_mark(const Mark& mark, const Since& counted_since) {
  Json out({{"mark", mark.name},
            {"taken", mark.taken_s},
            {"seconds", age_of(mark)},
            {"reset", counted_since.reset}});
  out.update(lifetime_json(counted_since.values));
  return out;
}

void print_since(const Mark& mark, const Since& counted_since) {
  print_lifetime("Since the mark '" + mark.name + "', " + human_age(age_of(mark)) + " ago",
                 lifetime_json(counted_since.values));
  if (counted_since.reset) {
    print_definition(
        "note",
        "the counters were damaged or removed after the mark was set and started again from zero; "
        "these numbers count from that start",
        kIndent);
  }
}

void print_contents(const StatsReport& report) {
  print_definition("directory", report.view.directory, kIndent);
  print_definition("entries", std::to_string(report.store.entries), kIndent);
  print_definition("images", human_bytes(report.all.cubin_bytes), kIndent);
  print_definition("on disk",
                   human_bytes(report.store.live_bytes) + " live in a file of " +
                       human_bytes(report.store.file_bytes) + ", which may grow to " +
                       human_bytes(report.store.cap_bytes) + " (KILN_CACHE_MAX_SIZE)",
                   kIndent);
  print_definition("saves", human_ms(report.all.compile_ms) + " of compile time per full warm start",
                   kIndent);
  if (!report.damaged.empty()) print_definition("damaged", damaged_text(report.damaged), kIndent);
  if (report.others.choices > 0)
    print_definition("tuned",
                     counted(report.others.choices, "choice") + " of 'kiln tune', included in the entries",
                     kIndent);
  if (report.others.blobs > 0)
    print_definition("blobs",
                     counted(report.others.blobs, "record") + " of other JIT compilers, " +
                         human_bytes(report.others.blob_bytes) + ", included in the entries",
                     kIndent);
  const std::uint64_t known =
      report.all.entries + report.others.choices + report.others.blobs + report.damaged.size();
  if (report.store.entries > known) {
    print_definition("unreadable",
                     counted(report.store.entries - known, "entry", "entries") +
                         " of another version of kiln; compiled again when asked for",
                     kIndent);
  }
}

int mark_now(const Context& context, const std::string& name) {
  check_mark_name(name);
  const std::string directory = find_store(context.config()).directory;
  const Mark mark = set_mark(directory, name);
  if (context.json)
    print_json({{"schema", context.schema()},
                {"directory", directory},
                {"marked", {{"mark", mark.name}, {"taken", mark.taken_s}}}});
  else
    print_paragraph("Marked '" + name + "'; 'kiln stats --since " + name +
                    "' shows what was counted from now on.");
  return kDone;
}

/// Parses "cluster=a" pieces.
std::vector<std::pair<std::string, std::string>> labels_of(const std::vector<std::string>& pieces) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const std::string& piece : pieces) {
    const std::size_t equals = std::min(piece.find('='), piece.size());
    const std::string name = piece.substr(0, equals);
    if (equals == piece.size() || !base::is_identifier(name) || name.starts_with("__"))
      throw Error(Errc::invalid_argument,
                  "--label '" + piece +
                      "': expected NAME=VALUE; NAME has only A-Z a-z 0-9 _ and begins "
                      "neither with a digit nor with __");
    const auto again = [&](const auto& before) { return before.first == name; };
    if (std::find(std::begin(kOwnLabels), std::end(kOwnLabels), name) != std::end(kOwnLabels) ||
        std::any_of(out.begin(), out.end(), again))
      throw Error(Errc::invalid_argument, "--label '" + piece + "': " + name +
                                              " is a label already, and Prometheus refuses a sample with the "
                                              "same label twice; choose another name");
    out.emplace_back(name, piece.substr(equals + 1));
  }
  return out;
}

int expose(const Context& context, const std::string& file, const std::vector<std::string>& label_pieces) {
  const auto labels = labels_of(label_pieces);
  if (file != "-" && !file.ends_with(".prom"))
    base::warn("'" + file + "' does not end in .prom: the node exporter's textfile collector ignores it");
  const StatsReport report = gather_stats(context.config());
  write_output(file, exposition_of(report, labels));
  return exit_of(report.damaged);
}

int show_stats(const Context& context, const StatsArguments& arguments) {
  if (const auto mark = given(arguments.mark_option, arguments.mark, kDefaultMark))
    return mark_now(context, *mark);
  if (const auto file = given(arguments.prometheus_option, arguments.prometheus, "-"))
    return expose(context, *file, arguments.labels);
  const auto mark_name = given(arguments.since_option, arguments.since, kDefaultMark);
  const runtime::Config config = context.config();
  std::optional<Mark> mark;  // read first: an unknown mark is an error whatever the store is like
  if (mark_name) mark = read_mark(find_store(config).directory, *mark_name);
  const StatsReport report = gather_stats(config);
  if (context.json) {
    Json out({{"schema", context.schema()},
              {"directory", report.view.directory},
              {"entries", report.store.entries},
              {"choices", report.others.choices},
              {"blobs", report.others.blobs},
              {"blob_bytes", report.others.blob_bytes},
              {"cubin_bytes", report.all.cubin_bytes},
              {"cap_bytes", report.store.cap_bytes},
              {"live_bytes", report.store.live_bytes},
              {"file_bytes", report.store.file_bytes},
              {"compile_ms", report.all.compile_ms},
              {"lifetime", lifetime_json(report.lifetime)},
              {"by_template", json_of_sums(report.by_template())},
              {"by_arch", json_of_sums(report.by_arch())}});
    if (mark) out["since"] = json_of_mark(*mark, since(*mark, report.lifetime));
    if (!report.damaged.empty())
      out["error"] = {{"code", "damaged"}, {"message", damaged_text(report.damaged)}};
    print_json(out);
    return exit_of(report.damaged);
  }
  if (mark) {
    print_since(*mark, since(*mark, report.lifetime));
    return exit_of(report.damaged);
  }
  if (report.nothing() && report.damaged.empty()) {
    print_paragraph(empty_store_text(report.view));
    return kDone;
  }
  print_contents(report);
  print("\n");
  print_lifetime("Since the store was made", lifetime_json(report.lifetime));
  print_groups("TEMPLATE", report.by_template());
  print_groups("ARCH", report.by_arch());
  return exit_of(report.damaged);
}

}  // namespace

void add_stats(Command app, Context& context) {
  const auto arguments = std::make_shared<StatsArguments>();
  const Command sub =
      context.add_command(app, "stats", "Show how much is cached, what it saves, and what was counted",
                          [&context, arguments] { return show_stats(context, *arguments); });
  arguments->mark_option =
      sub.option("--mark", arguments->mark, "Save the current counters as a mark; default name: last")
          .type_name("[NAME]")
          .expected(0, 1);
  arguments->since_option =
      sub.option("--since", arguments->since, "Show what was counted since a mark; default: last")
          .type_name("[NAME]")
          .expected(0, 1);
  arguments->prometheus_option =
      sub.option("--prometheus", arguments->prometheus,
                 "Write Prometheus' text format to FILE.prom, replaced in one step, or to stdout")
          .type_name("[FILE]")
          .expected(0, 1);
  sub.option("--label", arguments->labels, "A label for every sample of --prometheus; may be repeated")
      .type_name("NAME=VALUE")
      .expected(1, 1)
      .take_all()
      .needs(arguments->prometheus_option);
  arguments->mark_option.excludes(arguments->since_option).excludes(arguments->prometheus_option);
  arguments->prometheus_option.excludes(arguments->since_option).excludes(sub.find("--json"));
  sub.footer(
      "The counters are sums over all processes that used the store. A running process adds its counts once\n"
      "a minute and when it ends. Requests for kernels that are ready in a process are not counted. 'kiln "
      "gc'\n"
      "and 'kiln clear' do not change counters and marks.\n"
      "Exit status: 0 done, 1 failed, 2 usage or no such mark, 4 damaged entries.");
}

}  // namespace kiln::cli
