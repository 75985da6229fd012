#include "tools/kiln/lint/claim.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "instantiate/instantiate.hpp"
#include "toolchain/gpus.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/plan/threads.hpp"

namespace kiln::cli {
namespace {

using source::Manifest;
using Call = std::vector<Parameter>;

struct ClaimedCompile {
  const source::PrewarmRow* row;
  base::Arch arch;
  Call call;
  std::optional<Errc> failed{};
  std::string why{};
};

/// The i-th call has the i-th value of each list, from the start again after the last one.
std::vector<Call> calls_with_each_value(const source::PrewarmRow& row) {
  std::size_t count = 1;
  for (const auto& [name, texts] : row.values) count = std::max(count, texts.size());
  std::vector<Call> out(count);
  for (std::size_t i = 0; i < count; ++i)
    for (const auto& [name, texts] : row.values) out[i].push_back({name, texts[i % texts.size()]});
  return out;
}

std::vector<Call> all_calls(const source::PrewarmRow& row) {
  std::vector<Call> out{{}};
  for (const auto& [name, texts] : row.values) {
    std::vector<Call> longer;
    for (const Call& call : out) {
      for (const std::string& text : texts) {
        longer.push_back(call);
        longer.back().push_back({name, text});
      }
    }
    out = std::move(longer);
  }
  return out;
}

std::vector<ClaimedCompile> compiles_of(const Manifest& manifest, RowValues which) {
  std::vector<ClaimedCompile> out;
  const std::vector<base::Arch> claimed = claimed_targets(manifest);
  if (claimed.empty()) return out;
  for (const source::PrewarmRow& row : manifest.prewarm) {
    std::vector<base::Arch> archs = row.archs.empty() ? claimed : std::vector<base::Arch>{};
    for (const std::string& own : row.archs) archs.push_back(base::Arch::parse(own));
    const std::vector<Call> calls = which == RowValues::all ? all_calls(row) : calls_with_each_value(row);
    for (const base::Arch arch : archs)
      for (const Call& call : calls) out.push_back({&row, arch, call});
  }
  return out;
}

void compile(runtime::Core& core, const std::shared_ptr<const source::Template>& origin,
             ClaimedCompile& what) {
  std::vector<NamedValue> named;
  for (const Parameter& p : what.call) named.push_back({p.name, Value(std::string_view(p.value))});
  runtime::ObtainOptions options;
  options.arguments = runtime::Arguments::any;  // the compile of the first row reports wrong arguments
  try {
    const std::vector<Value> values = source::positional(origin->manifest, named);
    core.path().obtain(source::instantiate(origin, source::resolve(origin->manifest, values, what.arch)),
                       options);
  } catch (const Error& error) {
    if (error.code() == Errc::requirement) return;  // such values are for other archs
    what.failed = error.code(), what.why = brief_of(error);
  } catch (const std::exception& error) {
    what.failed = Errc::internal, what.why = error.what();
  }
}

}  // namespace

std::vector<base::Arch> claimed_targets(const Manifest& manifest) {
  std::vector<base::Arch> out;
  for (const base::Arch arch : manifest.arch_only)
    if (arch.features != base::Features::exact) out.push_back(arch);
  if (!manifest.arch_only.empty() || manifest.features == base::Features::exact) return out;
  std::vector<int> devices = toolchain::capabilities_of_generations();
  const int first = manifest.arch_min ? manifest.arch_min->number : devices.front();
  devices.insert(devices.begin(), first);
  int major = 0;
  for (const int device : devices) {
    if (device < first || device / 10 == major) continue;
    major = device / 10;
    const base::Arch exact(device);
    out.emplace_back(device, device >= 100 ? manifest.features : exact.features);
  }
  return out;
}

LintFindings lint_claim(Context& context, const std::shared_ptr<const source::Template>& origin,
                        RowValues which) {
  const Manifest& manifest = origin->manifest;
  std::vector<ClaimedCompile> compiles = compiles_of(manifest, which);
  LintFindings out;
  if (compiles.empty()) return out;
  runtime::Core& core = context.service().core();
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < compiles.size(); i = next++) compile(core, origin, compiles[i]);
  };
  const std::size_t jobs = static_cast<std::size_t>(core.path().compiler().workers().jobs());
  run_in_threads(static_cast<int>(std::min(jobs, compiles.size())), work,
                 [](int fewer, const std::string& why) {
                   base::warn(std::to_string(fewer) +
                              " compiles at once: no more threads could be started (" + why + ')');
                 });
  std::set<std::pair<int, base::Arch>> told;
  std::set<base::Arch> unknown;
  for (const ClaimedCompile& each : compiles) {
    if (!each.failed) continue;
    const std::string place = manifest.file + ':' + std::to_string(each.row->line), name = each.arch.name();
    if (*each.failed == Errc::unsupported_arch && source::supports(manifest, each.arch)) {
      if (unknown.insert(each.arch).second)
        out.push_back(
            {"features", Severity::note, manifest.name, place,
             "[template] arch allows images for " + name + ", which were not checked: " + each.why});
    } else if (told.emplace(each.row->line, each.arch).second) {
      const std::string who = each.row->archs.empty()
                                  ? "[template] arch allows images for " + name + ", and this row"
                                  : "this row names " + name + ", and";
      out.push_back({"features", Severity::error, manifest.name, place,
                     who + " does not compile for it" +
                         (each.call.empty() ? "" : " with " + text_of(each.call)) + ": " + each.why});
    }
  }
  return out;
}

}  // namespace kiln::cli
