#include "runtime/service/preparation.hpp"

#include <algorithm>
#include <random>

#include "instantiate/plan.hpp"
#include "instantiate/tune.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {
namespace {

std::vector<Value> positional_of(const KernelTemplate& opened, const std::vector<Parameter>& parameters) {
  std::vector<NamedValue> named;
  for (const Parameter& p : parameters) named.push_back({p.name, Value(p.value)});
  return source::positional(opened.origin().manifest, named);
}

/// Pins the call that a row was recorded from. True when it is resolved from now on as it was recorded.
bool pinned_as_recorded(const KernelTemplate& opened, const source::PlannedSpecialization& planned) {
  const std::string& device = opened.target().device.name;
  if (planned.tuned.empty() || device.empty()) return false;
  const auto recorded = recorded_call(opened.origin(), positional_of(opened, planned.values), planned.tuned,
                                      opened.target().arch);
  return recorded && pin_recorded(opened.origin(), *recorded, device);
}

}  // namespace

std::shared_ptr<Preparation> Preparation::begin(Scopes& all, Scope& scope, const PrepareRequest& request) {
  if (&scope.siblings() != &all)
    throw Error(Errc::invalid_argument,
                "the scope belongs to another service than the one that prepares the plan");
  const Config& config = all.core().config();
  const Target target = all.bind(request.device, request.arch);
  if (!target.driver && !request.image_only) {
    throw Error(Errc::invalid_argument,
                "preparing until ready needs a device; without one, prepare until image (KILN_UNTIL_IMAGE)");
  }
  std::shared_ptr<Preparation> out(new Preparation(request));
  std::vector<Row> rows;
  std::set<std::pair<const KernelTemplate*, std::string>> seen;
  const auto add = [&](const std::shared_ptr<KernelTemplate>& opened,
                       const source::PlannedSpecialization& planned) {
    const source::Resolved resolved = source::resolve(
        opened->origin().manifest, positional_of(*opened, planned.values), opened->target().arch);
    std::vector<Parameter> values = planned.values;
    if (pinned_as_recorded(*opened, planned)) {
      std::erase_if(values, [&](const Parameter& p) {
        return std::find(planned.tuned.begin(), planned.tuned.end(), p.name) != planned.tuned.end();
      });
    }
    std::string name = resolved.specialization.to_string();
    // Tuned parameters are resolved when the row is made, off the caller's way. So a row that leaves values
    // to tuning differs from a row that gives the same values.
    const auto free = source::free_to_tune(variant_for(opened->origin().manifest, opened->target().arch),
                                           positional_of(*opened, values));
    const bool tunes = !free.empty() && !opened->target().device.name.empty();
    std::string said = name;
    if (tunes)
      for (const std::size_t i : free) said += " ?" + std::to_string(i);
    if (seen.emplace(opened.get(), std::move(said)).second)
      rows.push_back(
          {opened, tunes ? values : resolved.specialization.parameters, std::move(name), opened->epoch()});
  };
  for (const source::PlannedSpecialization& row : source::parse_plan(request.plan, request.file)) {
    Target at = target;
    const base::Arch arch = row.arch.empty() ? target.arch : base::Arch::parse(row.arch);
    if (target.driver && arch != target.arch) {
      ++out->progress_.skipped;
      continue;
    }
    at.arch = arch;
    const std::shared_ptr<KernelTemplate> opened = scope.open(row.template_name, at).shared_from_this();
    for (const source::PlannedSpecialization& planned :
         source::with_every_value(row, opened->origin().manifest))
      add(opened, planned);
  }
  // Nodes of one fleet begin with different rows of the same plan, or they would all wait for the same few.
  if (config.has_remote() && config.remote_writes() && !rows.empty())
    std::rotate(rows.begin(),
                rows.begin() + static_cast<std::ptrdiff_t>(std::random_device{}() % rows.size()), rows.end());
  out->progress_.total = rows.size() + out->progress_.skipped;
  out->progress_.done = out->progress_.skipped;
  for (Row& row : rows) {
    all.core().background().run(Background::Work::ahead, [out, row = std::move(row)](const char* why_not) {
      out->make(row, why_not);
    });
  }
  return out;
}

void Preparation::make(const Row& row, const char* why_not) noexcept try {
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_) why_not = "cancelled";
  }
  if (why_not) throw Error(Errc::not_ready, row.name + " was not prepared: " + why_not);
  if (request_.deadline.passed())
    throw Error(Errc::deadline, "the deadline passed before " + row.name + " was begun");
  GetRequest get;
  get.deadline = request_.deadline;
  get.urgency = compile::Urgency::ahead;
  get.may_compile = request_.may_compile;
  get.past_seal = true;
  get.epoch = row.epoch;
  const std::vector<Value> values = positional_of(*row.opened, row.values);
  Outcome outcome = Outcome::memory;
  if (request_.image_only) {
    outcome = row.opened->compile(values, get).outcome;
  } else {
    const std::optional<Outcome> made = row.opened->get_on_own_thread(values, get);
    if (!made) return ended(&kiln_progress::ready);
    outcome = *made;
  }
  ended(outcome == Outcome::compiled ? &kiln_progress::compiled
        : outcome == Outcome::waited ? &kiln_progress::waited
                                     : &kiln_progress::disk);
} catch (...) {
  ended(&kiln_progress::failed, std::current_exception());
}

void Preparation::ended(std::uint64_t kiln_progress::*count, std::exception_ptr error) {
  const std::lock_guard one_at_a_time(telling_);
  kiln_progress now{};
  bool tell = false;
  {
    const std::lock_guard lock(mutex_);
    ++(progress_.*count), ++progress_.done;
    if (error && !first_) first_ = std::move(error);
    tell = request_.on_progress && !cancelled_;
    now = progress_;
  }
  if (tell) request_.on_progress(&now, request_.user);
  const std::lock_guard lock(mutex_);
  if (progress_.done == progress_.total) all_done_.notify_all();
}

void Preparation::refuse_in_child() const {
  if (generation_ != base::process_generation())
    throw Error(Errc::not_ready,
                "the parent of this forked process prepares the plan, and this process cannot wait for it");
}

bool Preparation::wait(base::Deadline deadline) {
  refuse_in_child();
  std::unique_lock lock(mutex_);
  const auto done = [&] { return progress_.done == progress_.total; };
  if (deadline.at() == base::Clock::time_point::max())
    all_done_.wait(lock, done);
  else if (!all_done_.wait_until(lock, deadline.at(), done))
    return false;
  if (first_) std::rethrow_exception(first_);
  return true;
}

kiln_progress Preparation::progress() {
  refuse_in_child();
  const std::lock_guard lock(mutex_);
  return progress_;
}

void Preparation::cancel() noexcept {
  if (generation_ != base::process_generation()) return;
  const std::lock_guard not_while_telling(telling_);
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
}

}  // namespace kiln::runtime
