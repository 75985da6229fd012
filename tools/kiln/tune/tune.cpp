// kiln tune: finds the best `tune` candidates of parameters on this GPU, and stores them as a choice.
#include "tools/kiln/tune/tune.hpp"

#include <algorithm>
#include <cstdint>

#include "base/text.hpp"
#include "instantiate/plan.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/plan/tuned_device.hpp"
#include "tools/kiln/run/run.hpp"
#include "tools/kiln/tune/report.hpp"

namespace kiln::cli {
namespace {

struct TuneFlags {
  std::string name;
  std::vector<std::string> assignments;
  bool list = false, dry = false, all_prewarm = false;
  int device = 0;
  std::uint64_t seed = 1;
};

/// Every combination of the named lists; the last list varies fastest. Without lists there is
/// one empty combination.
using Lists = std::vector<std::pair<std::string, std::vector<std::string>>>;
std::vector<std::vector<Parameter>> product_of(const Lists& lists) {
  std::vector<std::vector<Parameter>> out(1);
  for (const auto& [name, texts] : lists) {
    std::vector<std::vector<Parameter>> longer;
    for (const auto& before : out)
      for (const std::string& text : texts) {
        longer.push_back(before);
        longer.back().push_back({name, text});
      }
    out = std::move(longer);
  }
  return out;
}

/// Adds the call in the requested sizes. A call that leaves the parameter of a family open is tuned for each member,
/// in the sizes that the member serves. `its_sizes`: so is a call that names the member, where a size names one.
void add_requests(const source::Manifest& manifest, const TuneRequest& request, std::vector<Parameter> call,
                  bool its_sizes, std::vector<TuneRequest>& out) {
  const auto given = std::find_if(call.begin(), call.end(), [&](const Parameter& p) {
    return manifest.family && parameter_index(manifest, p.name) == manifest.family->parameter;
  });
  const auto add = [&](std::vector<Parameter> parameters, std::vector<GivenArguments> sizes) {
    out.push_back(request);
    out.back().given = std::move(parameters), out.back().sizes = std::move(sizes);
  };
  if (given != call.end() && !its_sizes) return add(std::move(call), request.sizes);
  for (MemberSizes& group : by_member(manifest, request.sizes)) {
    std::vector<Parameter> parameters = call;
    if (group.member && given == call.end()) {
      const NamedValue value = value_of_member(manifest, *group.member);
      parameters.push_back({std::string(value.name), std::string(value.value.text)});
    } else if (group.member && given->value != value_of_member(manifest, *group.member).value.text) {
      continue;
    }
    add(std::move(parameters), std::move(group.sizes));
  }
}

/// "T=bf16 H=2048,4096 rows=64,8192" gives two calls to tune, each timed at two sizes.
std::vector<TuneRequest> requests_of(const source::Manifest& manifest, const TuneFlags& flags,
                                     base::Arch arch) {
  Lists parameters;
  std::vector<GivenList> arguments;
  for (const NamedValue& v : source::parse_assignments(flags.assignments)) {
    GivenList list = parse_list(v.name, v.value.text);
    if (v.value.text.empty()) throw Error(Errc::invalid_value, "'" + list.name + "=' has no value");
    if (parameter_index(manifest, v.name) >= 0)
      parameters.emplace_back(std::move(list.name), std::move(list.values));
    else
      arguments.push_back(std::move(list));
  }
  TuneRequest request;
  request.seed = flags.seed;
  request.sizes = sizes_of(arguments);
  std::vector<std::vector<Parameter>> calls;
  if (!flags.all_prewarm) {
    calls = product_of(parameters);
  } else {
    if (!parameters.empty())
      throw Error(Errc::invalid_argument,
                  "--all-prewarm tunes the manifest's [[prewarm]] rows and takes no parameters, but '" +
                      parameters.front().first + "' was given");
    for (const source::PlannedSpecialization& row : source::shipped_plan(manifest))
      if ((row.arch.empty() || base::Arch::parse(row.arch) == arch) && tunes(manifest, row.values))
        calls.push_back(row.values);
    if (calls.empty())
      throw Error(Errc::invalid_argument, "template '" + manifest.name +
                                              "' has no [[prewarm]] row with something to tune for " +
                                              arch.name());
  }
  std::vector<TuneRequest> out;
  for (auto& call : calls) add_requests(manifest, request, std::move(call), flags.all_prewarm, out);
  if (out.empty())
    throw Error(Errc::invalid_argument, "no [[prewarm]] row of template '" + manifest.name +
                                            "' is the member that serves one of the given sizes");
  return out;
}

/// Throws Error(io), because the result of the search would otherwise be lost without a message.
void store_choice(cache::Store* store, const TuneResult& result) {
  if (!store)
    throw Error(Errc::io,
                "no directory can hold the cache, so the choice cannot be stored; set KILN_CACHE_DIR");
  const cache::Record record{result.key.key, compile::encode(result.choice), result.key.text, {}};
  const cache::PutResult put = store->put(record, store->put_wait(), cache::Existing::replaced);
  if (put.put != cache::Put::stored && put.put != cache::Put::present)
    throw Error(Errc::io, "the choice for " + result.choice.label() + " could not be stored in '" +
                              store->directory() + "': " + put.detail);
}

int list(const Context& context, const TuneFlags& flags) {
  const SearchedStores searched = searched_stores(context.config());
  std::vector<StoredChoice> choices = read_choices(searched);
  if (!flags.name.empty())
    std::erase_if(choices, [&](const StoredChoice& c) { return c.choice.template_name != flags.name; });
  if (!context.json) {
    print_choices(choices, searched.directory);
    return kDone;
  }
  Json out{{"schema", context.schema()}, {"choices", Json::array()}};
  for (const StoredChoice& choice : choices) out["choices"].push_back(json_of(choice));
  print_json(out);
  return kDone;
}

/// The error that ended a run of several calls before its last one.
struct Thrown {
  Errc code = Errc::ok;
  std::string message;
};

int report_rows(const Context& context, const TuneFlags& flags, const std::vector<TunedRow>& rows,
                const Thrown& thrown = {}) {
  std::string wrong;
  bool interrupted = false;
  for (const TunedRow& row : rows) {
    if (!row.result.error.empty()) wrong += (wrong.empty() ? "" : "; ") + row.result.error;
    interrupted = interrupted || row.result.interrupted;
  }
  if (!wrong.empty()) wrong += "; nothing was stored for it";
  if (context.json) {
    Json out{{"schema", context.schema()}, {"results", Json::array()}};
    for (const TunedRow& row : rows) out["results"].push_back(json_of(flags.name, row, flags.dry));
    if (thrown.code != Errc::ok)
      out["error"] = {{"code", name_of(thrown.code)}, {"message", thrown.message}};
    else if (!wrong.empty())
      out["error"] = {{"code", "wrong_candidate"}, {"message", wrong}};
    print_json(out);
  }
  std::fflush(stdout);
  if (!wrong.empty()) std::fprintf(stderr, "kiln: error: %s\n", wrong.c_str());
  if (thrown.code != Errc::ok) {
    std::fprintf(stderr, "kiln: error: %s\n", thrown.message.c_str());
    return exit_of(thrown.code);
  }
  if (interrupted) std::fprintf(stderr, "kiln: interrupted; unfinished searches are not stored\n");
  return interrupted ? kInterrupted : wrong.empty() ? kDone : kFailed;
}

int dry_run(Context& context, const TuneFlags& flags) {
  const base::Arch arch = context.target_arch();
  const auto origin = context.service().catalog().open(flags.name);
  std::vector<TunedRow> rows;
  for (const TuneRequest& request : requests_of(variant_for(origin->manifest, arch), flags, arch)) {
    rows.push_back({list_candidates(origin->manifest, request, arch), arch.name(), "", ""});
    if (!context.json) print_row(flags.name, rows.back(), true);
  }
  return report_rows(context, flags, rows);
}

int tune(Context& context, const TuneFlags& flags) {
  if (flags.list && (!flags.assignments.empty() || flags.all_prewarm))
    throw Error(Errc::invalid_argument,
                "--list takes a template's name and no values, because it tunes nothing");
  if (flags.list) return list(context, flags);
  if (flags.name.empty())
    throw Error(Errc::invalid_argument, "template is required (see 'kiln tune --help')");
  if (flags.dry) return dry_run(context, flags);
  PrimaryContext gpu(flags.device);
  runtime::Service& service = context.service();
  runtime::KernelTemplate& opened = service.open(flags.name, KILN_DEVICE_CURRENT, "");
  const base::Arch arch = opened.target().arch;
  if (!context.arch.empty() && context.target_arch() != arch)
    throw Error(Errc::invalid_argument, "--arch " + context.arch + " was given, but this GPU is " +
                                            arch.name() + ": tune times kernels on this GPU");
  std::vector<TunedRow> rows;
  for (const TuneRequest& request : requests_of(variant_for(opened.origin().manifest, arch), flags, arch)) {
    TunedRow row;
    row.arch = arch.name(), row.device = gpu.facts().name;
    try {
      row.result = search(context, gpu, opened, request);
      if (row.result.error.empty() && !row.result.interrupted) {
        const auto store = service.core().state().stores.writable();
        store_choice(store.get(), row.result);
        row.directory = store->directory();
      }
    } catch (const Error& error) {
      if (rows.empty()) throw;
      return report_rows(context, flags, rows, {error.code(), error.what()});  // reports stored choices
    }
    rows.push_back(std::move(row));
    if (!context.json) print_row(flags.name, rows.back(), false);
    if (rows.back().result.interrupted) break;
    opened.release();  // these kernels are not launched again
  }
  return report_rows(context, flags, rows);
}

}  // namespace

void add_tune(Command app, Context& context) {
  const auto flags = std::make_shared<TuneFlags>();
  const Command sub =
      context.add_command(app, "tune", "Find the fastest of a template's candidates on this GPU",
                          [&context, flags] { return tune(context, *flags); });
  sub.option("template", flags->name, "Name of the template").type_name("NAME");
  sub.option("values", flags->assignments,
             "Parameters, and sizes to time at (rows=64,8192); lists with commas multiply")
      .type_name("P=V");
  sub.flag("--all-prewarm", flags->all_prewarm, "Tune every [[prewarm]] row of the template's manifest");
  const Option dry = sub.flag("--dry-run", flags->dry, "Only list the candidates; needs no GPU");
  sub.flag("--list", flags->list, "List the choices of the cache and its layers").excludes(dry);
  sub.option("--device", flags->device, "Ordinal of the GPU").capture_default_str();
  sub.option("--seed", flags->seed, "Seed of the generated inputs").capture_default_str();
  sub.footer(
      "Candidates are the product of the `tune` lists of the parameters that are not given, as far as the\n"
      "manifest allows them. Each is compiled through the cache, compared with the [reference] and with the\n"
      "default's bits, and timed L2-cold beside the others. The best is stored if it beats the default by\n"
      "more than the noise, else the default. Processes that start later use it, and bundles carry it.\n"
      "Results whose bits differ from the default's are an error unless the manifest sets "
      "tune_changes_bits.\n"
      "Exit status: 0 stored, 1 failed or a candidate is wrong, 2 usage, 130 interrupted.\n"
      "Example: kiln tune rms_norm T=bf16 H=4096,8192 rows=64,8192");
}

}  // namespace kiln::cli
