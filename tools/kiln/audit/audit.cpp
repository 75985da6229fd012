// kiln audit: recompiles cached entries and compares the bytes.
#include "tools/kiln/audit/audit.hpp"

#include <algorithm>
#include <cstdint>
#include <random>

#include "tools/kiln/audit/run.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/interrupt.hpp"

namespace kiln::cli {
namespace {

using State = AuditResult::State;

struct AuditArguments {
  std::size_t sample = 10;
  bool all = false;
  std::optional<std::uint64_t> seed;
  std::string template_name;
  int jobs = 0;
};

struct Audit {
  std::string directory;
  std::size_t stored = 0;  ///< entries in the store
  std::vector<StoredEntry> entries;
  std::vector<AuditResult> results;  ///< one for each of `entries`, in their order
  std::uint64_t seed = 0;
  int jobs = 1;
  double wall_ms = 0;
  bool interrupted = false;

  std::size_t count(State state) const {
    return static_cast<std::size_t>(std::count_if(
        results.begin(), results.end(), [state](const AuditResult& r) { return r.state == state; }));
  }
};

int exit_of(const Audit& audit) {
  if (audit.count(State::differs) + audit.count(State::damaged) > 0) return kDamaged;
  if (audit.interrupted) return kInterrupted;
  if (audit.count(State::equal) + audit.count(State::removed) == audit.results.size()) return kDone;
  return audit.count(State::equal) > 0 ? kPartly : kFailed;
}

Json audit_json(const Context& context, const Audit& audit) {
  Json results = Json::array();
  for (std::size_t i = 0; i < audit.entries.size(); ++i) {
    const StoredEntry& entry = audit.entries[i];
    const AuditResult& result = audit.results[i];
    const bool compiled = result.state == State::equal || result.state == State::differs;
    const auto text = [](const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); };
    results.push_back({{"key", entry.key.hex()},
                       {"template", entry.facts.unit},
                       {"params", json_of(entry.facts.parameters)},
                       {"arch", entry.facts.arch},
                       {"state", name_of(result.state)},
                       {"reason", text(result.reason)},
                       {"section", text(result.section)},
                       {"cached_bytes", entry.cubin_bytes},
                       {"compiled_bytes", compiled ? Json(result.compiled_bytes) : Json(nullptr)},
                       {"compile_ms", compiled ? Json(result.compile_ms) : Json(nullptr)}});
  }
  Json out({{"schema", context.schema()},
            {"directory", audit.directory},
            {"entries", audit.stored},
            {"audited", audit.entries.size()},
            {"seed", audit.seed},
            {"jobs", audit.jobs},
            {"wall_ms", audit.wall_ms},
            {"interrupted", audit.interrupted}});
  for (const State state :
       {State::equal, State::differs, State::damaged, State::removed, State::not_comparable, State::failed})
    out[std::string(name_of(state))] = audit.count(state);
  out["results"] = results;
  return out;
}

void print_summary(const Audit& audit) {
  std::string text = std::to_string(audit.results.size()) + " of " +
                     counted(audit.stored, "entry", "entries") + ": " +
                     std::to_string(audit.count(State::equal)) + " equal";
  for (const State state : {State::differs, State::damaged, State::removed, State::not_comparable,
                            State::failed, State::not_started}) {
    std::string words(name_of(state));
    std::replace(words.begin(), words.end(), '_', ' ');
    if (const std::size_t count = audit.count(state)) text += ", " + std::to_string(count) + ' ' + words;
  }
  print_paragraph(text + "; " + human_ms(audit.wall_ms) + " with " + std::to_string(audit.jobs) +
                  " at once, --seed " + std::to_string(audit.seed));
  if (audit.count(State::differs) > 0) {
    print_paragraph(
        "An entry that differs is not what its sources and toolchain produce today. Nothing was changed. "
        "'kiln show KEY' shows an entry, and --json lists the keys. 'kiln clear' removes all entries, and "
        "'kiln prewarm' compiles them again.");
  }
  if (audit.count(State::not_comparable) > 0) {
    print_paragraph(
        "An entry that is not comparable was compiled from other files, or by another toolchain, than this "
        "machine has now.",
        Style::dim);
  }
}

/// The entries of the store that the arguments select.
std::vector<StoredEntry> chosen_from(Context& context, const AuditArguments& arguments,
                                     std::vector<StoredEntry> entries) {
  std::vector<std::string> archs;
  if (!context.arch.empty())
    for (const base::Arch arch : context.target_archs()) archs.push_back(arch.name());
  std::erase_if(entries, [&](const StoredEntry& e) {
    return (!arguments.template_name.empty() && e.template_name() != arguments.template_name) ||
           (!archs.empty() && std::find(archs.begin(), archs.end(), e.facts.arch) == archs.end());
  });
  return entries;
}

int audit(Context& context, const AuditArguments& arguments) {
  context.jobs = arguments.jobs;
  const StoreView view = view_store(context.config());
  Audit out;
  out.directory = view.directory;
  out.seed = arguments.seed ? *arguments.seed : std::random_device()();
  std::vector<std::string> damaged;
  if (view.store) out.entries = read_entries(*view.store, &damaged);
  out.stored = out.entries.size();
  if (!arguments.template_name.empty() && damaged.empty())
    check_template(arguments.template_name, out.entries, context.config());
  out.entries = chosen_from(context, arguments, std::move(out.entries));
  if (out.stored > 0 && out.entries.empty())
    return report(context, Errc::io,
                  "none of the " + std::to_string(out.stored) + " entries in '" + out.directory +
                      "' is of this template and arch; 'kiln ls' lists them");
  if (!arguments.all) out.entries = sample_of(std::move(out.entries), arguments.sample, out.seed);
  if (!out.entries.empty()) {
    runtime::Service& service = context.service();
    out.jobs = service.core().path().compiler().workers().jobs();
    const auto start = base::Clock::now();
    out.results = run_audit(service, *view.store, out.entries, {out.jobs, !context.json});
    out.wall_ms = std::chrono::duration<double, std::milli>(base::Clock::now() - start).count();
    out.interrupted = PoliteInterrupt::requested();
  }
  if (context.json)
    print_json(audit_json(context, out));
  else if (out.stored == 0)
    print_paragraph(empty_store_text(view));
  else
    print_summary(out);
  const int status = exit_of(out);
  return status == kDone ? cli::exit_of(damaged) : status;
}

}  // namespace

void add_audit(Command app, Context& context) {
  const auto arguments = std::make_shared<AuditArguments>();
  const Command sub = context.add_command(app, "audit", "Recompile cached entries and compare the bytes",
                                          [&context, arguments] { return audit(context, *arguments); });
  const Option sample =
      sub.option("--sample", arguments->sample, "Number of entries to audit, chosen at random; default: 10")
          .type_name("N")
          .range(std::size_t{1}, std::size_t{1} << 32);
  sub.flag("--all", arguments->all, "Audit all entries").excludes(sample);
  sub.option("--seed", arguments->seed,
             "Choose the same entries as an earlier audit, which printed this seed")
      .type_name("S");
  sub.option("-t,--template", arguments->template_name, "Only entries of this template").type_name("NAME");
  sub.option("-j,--jobs", arguments->jobs, "Compiles at once; default: KILN_JOBS, else one per core")
      .type_name("N")
      .range(1, 1024);
  sub.footer(
      "Each entry is compiled from today's sources with today's toolchain, without the store. Where the\n"
      "entry's key would be another today, the key fields that differ are named. --arch selects entries\n"
      "and may be a list. Nothing is published, repaired or removed. An entry that another process\n"
      "removes during the audit is not an error.\n"
      "Exit status: 0 all equal, 1 none could be compared, 2 usage, 3 some could not be compared or\n"
      "compiled, 4 some differ or are damaged, 130 interrupted.");
}

}  // namespace kiln::cli
