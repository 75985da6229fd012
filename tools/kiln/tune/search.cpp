#include "tools/kiln/tune/search.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/text.hpp"
#include "kiln/kiln.h"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/plan/run.hpp"
#include "tools/kiln/tune/measure.hpp"

namespace kiln::cli {
namespace {

constexpr double kLeastGain = 0.01;  // a smaller gain is not worth another kernel

std::vector<Value> values_of(const source::Manifest& manifest, const std::vector<Parameter>& given) {
  std::vector<NamedValue> named;
  for (const Parameter& p : given) named.push_back({p.name, Value(p.value)});
  return source::positional(manifest, named);
}

/// "rows=64 stride_x=8192"
std::string size_text(const GivenArguments& arguments) {
  std::string out;
  for (const auto& [name, value] : arguments) out += (out.empty() ? "" : " ") + name + '=' + value;
  return out;
}

/// A candidate that is still in the search, and its kernel.
struct Runner {
  std::size_t tried;  ///< its index in the result
  const source::Candidate* candidate;
  const runtime::LoadedKernel* kernel;
};

class Search {
 public:
  Search(Context& context, PrimaryContext& gpu, runtime::KernelTemplate& opened, const TuneRequest& request)
      : context_(context),
        gpu_(gpu),
        opened_(opened),
        request_(request),
        manifest_(variant_for(opened.origin().manifest, opened.target().arch)),
        candidates_(source::tune_candidates(opened.origin().manifest, values_of(manifest_, request.given),
                                            opened.target().arch)),
        result_(list_candidates(opened.origin().manifest, request, opened.target().arch)) {}

  TuneResult run() {
    const PoliteInterrupt interrupt;
    compile();
    if (!stopped()) load();
    for (std::size_t size = 0; size < request_.sizes.size() && !stopped(); ++size) measure(size);
    if (!stopped()) choose();
    return std::move(result_);
  }

 private:
  bool stopped() {
    result_.interrupted = result_.interrupted || PoliteInterrupt::requested();
    return result_.interrupted || !result_.error.empty();
  }

  /// Compiles all candidates at once, through the cache.
  void compile() {
    PrewarmPlan plan;
    for (const source::Candidate& candidate : candidates_.all) {
      PlannedTask task;
      task.origin = opened_.shared_origin();
      task.resolved = candidate.resolved;
      task.label =
          manifest_.name + ' ' + cli::text_of(candidate.chosen) + ' ' + candidate.resolved.arch.name();
      plan.tasks.push_back(std::move(task));
    }
    runtime::Core& core = context_.service().core();
    const PrewarmResult made = run_prewarm(
        core, plan,
        {core.path().compiler().workers().jobs(), true, !context_.json, compile::Strictness::declared});
    result_.interrupted = made.interrupted;
    for (std::size_t i = 0; i < made.tasks.size(); ++i) {
      TriedCandidate& tried = result_.tried[i];
      if (made.tasks[i].state == TaskResult::State::failed)
        tried.dropped = made.tasks[i].diagnostic;
      else if (!made.tasks[i].broken.empty())
        tried.dropped = made.tasks[i].broken.front().sentence;
    }
  }

  /// Loads the kernels. The default is never dropped, because every caller without a choice gets it.
  void load() {
    for (std::size_t i = 0; i < candidates_.all.size(); ++i) {
      TriedCandidate& tried = result_.tried[i];
      if (i > 0 && !tried.dropped.empty()) continue;
      tried.dropped.clear();
      const source::Candidate& candidate = candidates_.all[i];
      const runtime::LoadedKernel& kernel =
          opened_.get(values_of(manifest_, candidate.resolved.specialization.parameters), {});
      const compile::Facts& facts = kernel.image().facts;
      tried.registers = facts.registers, tried.spill_bytes = facts.spill_bytes();
      const auto allowed = static_cast<std::uint64_t>(manifest_.limits.max_spill_bytes.value_or(0));
      if (i > 0 && tried.spill_bytes > allowed) {
        tried.dropped = "spills " + std::to_string(tried.spill_bytes) + " bytes";
        continue;
      }
      runners_.push_back({i, &candidate, &kernel});
    }
    if (!manifest_.reference) return;
    runtime::GetRequest request;
    request.which = source::Which::reference;
    reference_ = &opened_.get(
        values_of(manifest_, candidates_.all.front().resolved.specialization.parameters), request);
    result_.checked = true;
  }

  /// Checks and times all remaining candidates at one size.
  void measure(std::size_t size) {
    const GivenArguments& arguments = request_.sizes[size];
    std::vector<std::unique_ptr<RunCase>> calls;
    std::vector<Runner> taken;
    bits_.clear();
    for (const Runner& runner : runners_) {
      try {
        auto call = std::make_unique<RunCase>(context_.service(), gpu_, opened_, runner.candidate->resolved,
                                              arguments, runner.kernel->image().facts.exports);
        check(*call, runner, result_.sizes[size]);
        if (stopped()) return;
        calls.push_back(std::move(call));
        taken.push_back(runner);
      } catch (const Error& error) {
        // The candidate's [[require]] refuses this call, so the candidate is dropped.
        if (runner.tried == 0 || error.code() != Errc::requirement) throw;
        result_.tried[runner.tried].dropped = error.what();
        result_.tried[runner.tried].us.clear();
      }
    }
    runners_ = std::move(taken);
    std::vector<TimedKernel> timed;
    for (std::size_t i = 0; i < calls.size(); ++i) timed.push_back({calls[i].get(), runners_[i].kernel});
    timed.push_back(timed.front());  // the default again: shows how far two times of one kernel differ
    std::vector<double> us = time_in_turns(timed, request_.seed);
    result_.noise = std::max(result_.noise, std::abs(std::log(us.front() / us.back())));
    us.front() = std::sqrt(us.front() * us.back());
    for (std::size_t i = 0; i < calls.size(); ++i) result_.tried[runners_[i].tried].us.push_back(us[i]);
    described_.push_back(cli::text_of(calls.front()->values().texts()));
  }

  void fail(const Runner& runner, const std::string& size, const std::string& argument,
            const std::string& what) {
    result_.error = "template '" + manifest_.name + "', candidate " +
                    cli::text_of(result_.tried[runner.tried].chosen) + (size.empty() ? "" : ", " + size) +
                    ": argument '" + argument + "' " + what;
  }

  void check(RunCase& call, const Runner& runner, const std::string& size) {
    const Written written = written_bits(call, *runner.kernel, request_.seed);
    if (!written.outside.empty())
      return fail(runner, size, written.outside, "is wrong: the kernel writes outside of its bounds");
    if (runner.tried == 0) bits_ = written.bits;
    if (runner.tried == 0 && !manifest_.tune_changes_bits)
      compare(written_bits(call, *runner.kernel, request_.seed).bits, runner, size,
              "has different bits in two launches of the default");
    if (!result_.error.empty()) return;
    if (reference_) {
      for (const CheckedArgument& argument : cli::check(call, *runner.kernel, *reference_, request_.seed))
        if (!argument.ok) return fail(runner, size, argument.name, what_is_wrong(argument));
    }
    compare(written.bits, runner, size, "has different bits than with the default");
  }

  void compare(const std::vector<WrittenBits>& written, const Runner& runner, const std::string& size,
               const std::string& what) {
    for (std::size_t i = 0; i < written.size() && i < bits_.size(); ++i) {
      if (written[i].digest == bits_[i].digest) continue;
      result_.tried[runner.tried].bits_equal = false;
      if (!manifest_.tune_changes_bits)
        return fail(runner, size, written[i].argument,
                    what + "; if candidates may change bits, set [template] tune_changes_bits = true");
    }
  }

  /// Geometric mean of the times divided by the default's times.
  static double ratio_of(const std::vector<double>& us, const std::vector<double>& defaults) {
    double sum = 0;
    for (std::size_t size = 0; size < us.size(); ++size) sum += std::log(us[size] / defaults[size]);
    return std::exp(sum / static_cast<double>(us.size()));
  }

  void choose() {
    std::size_t first = 0;
    for (std::size_t i = 0; i < result_.tried.size(); ++i) {
      TriedCandidate& tried = result_.tried[i];
      if (tried.us.empty()) continue;
      tried.ratio = ratio_of(tried.us, result_.tried.front().us);
      if (tried.ratio < result_.tried[first].ratio) first = i;
    }
    const auto noise = [&] { return std::max(kLeastGain, std::expm1(result_.noise)); };
    if (first > 0 && result_.tried[first].ratio < 1 - noise()) {
      run_off(first);
      if (stopped()) return;
      if (result_.tried[first].ratio < 1 - noise()) result_.best = first;
    }
    result_.noise = noise();
    fill_choice();
  }

  /// The best of many candidates is partly lucky. It is timed against the default again, and only
  /// this result counts.
  void run_off(std::size_t first) {
    const auto place = [](const std::vector<Runner>& all, std::size_t tried) {
      return *std::find_if(all.begin(), all.end(), [&](const Runner& r) { return r.tried == tried; });
    };
    const Runner ours = place(runners_, first), plain = place(runners_, 0);
    for (std::size_t size = 0; size < request_.sizes.size() && !stopped(); ++size) {
      const auto call_of = [&](const Runner& runner) {
        return RunCase(context_.service(), gpu_, opened_, runner.candidate->resolved, request_.sizes[size],
                       runner.kernel->image().facts.exports);
      };
      RunCase our_call = call_of(ours), plain_call = call_of(plain);
      const TimedKernel by_default{&plain_call, plain.kernel};
      const std::vector<double> us =
          time_in_turns({by_default, {&our_call, ours.kernel}, by_default}, request_.seed);
      result_.noise = std::max(result_.noise, std::abs(std::log(us[0] / us[2])));
      result_.tried.front().us[size] = std::sqrt(us[0] * us[2]);
      result_.tried[first].us[size] = us[1];
    }
    result_.tried[first].ratio = ratio_of(result_.tried[first].us, result_.tried.front().us);
  }

  void fill_choice() {
    const std::vector<double>& defaults = result_.tried.front().us;
    const TriedCandidate& best = result_.tried[result_.best];
    const source::Resolved& plain = candidates_.all.front().resolved;
    compile::TunedChoice& choice = result_.choice;
    choice.template_name = manifest_.name, choice.arch = plain.arch.name(), choice.device = gpu_.facts().name;
    choice.fixed = result_.fixed, choice.chosen = best.chosen;
    for (std::size_t size = 0; size < defaults.size(); ++size)
      choice.timings.push_back({described_[size], best.us[size], defaults[size]});
    for (const TriedCandidate& tried : result_.tried) choice.candidates += !tried.us.empty();
    choice.kiln_version = kiln_version();
    choice.created_s = std::time(nullptr);
    result_.key =
        runtime::Choices::key_of(source::instantiate(opened_.shared_origin(), plain),
                                 source::free_to_tune(manifest_, values_of(manifest_, request_.given)),
                                 choice.device, context_.service().state().files);
  }

  Context& context_;
  PrimaryContext& gpu_;
  runtime::KernelTemplate& opened_;
  const TuneRequest& request_;
  const source::Manifest& manifest_;
  const source::Candidates candidates_;
  TuneResult result_;
  std::vector<Runner> runners_;
  const runtime::LoadedKernel* reference_ = nullptr;
  std::vector<WrittenBits> bits_;       // bits of the default at the current size
  std::vector<std::string> described_;  // by size
};

}  // namespace

bool tunes(const source::Manifest& manifest, const std::vector<Parameter>& given) {
  return !source::free_to_tune(manifest, values_of(manifest, given)).empty();
}

TuneResult list_candidates(const source::Manifest& manifest, const TuneRequest& request, base::Arch arch) {
  const std::vector<Value> values = values_of(variant_for(manifest, arch), request.given);
  if (!tunes(variant_for(manifest, arch), request.given))
    throw Error(Errc::invalid_argument,
                "template '" + manifest.name + "' has nothing to tune" +
                    (request.given.empty() ? "" : " with " + cli::text_of(request.given)) +
                    ": no parameter without a given value has candidates (tune = [...] in its [param])");
  source::Candidates found = source::tune_candidates(manifest, values, arch);
  TuneResult out;
  const std::vector<Parameter>& chosen = found.all.front().chosen;
  for (const Parameter& p : found.all.front().resolved.specialization.parameters) {
    const auto same = [&](const Parameter& free) { return free.name == p.name; };
    if (std::none_of(chosen.begin(), chosen.end(), same)) out.fixed.push_back(p);
  }
  for (source::Candidate& candidate : found.all)
    out.tried.emplace_back().chosen = std::move(candidate.chosen);
  out.refused = std::move(found.refused);
  for (const GivenArguments& size : request.sizes) out.sizes.push_back(size_text(size));
  return out;
}

TuneResult search(Context& context, PrimaryContext& gpu, runtime::KernelTemplate& opened,
                  const TuneRequest& request) {
  return Search(context, gpu, opened, request).run();
}

}  // namespace kiln::cli
