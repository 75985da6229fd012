#include "runtime/kernels/family_maker.hpp"

#include <algorithm>

#include "base/quote.hpp"
#include "instantiate/trace_text.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {

const KernelFamily& FamilyMaker::get(std::span<const Value> values, const GetRequest& request,
                                     const KeepAlive& keep) {
  maker_.check_usable();
  std::vector<Member> members = members_of(values, request);
  admit(members, request);
  make(members, request, keep);
  return keep_family(members);
}

const source::FamilySpec& FamilyMaker::spec() const {
  if (origin_->manifest.family) return *origin_->manifest.family;
  throw Error(Errc::invalid_argument,
              "template " + base::quote(origin_->manifest.name) +
                  " is no family: its manifest has no [family]; get its kernels one by one");
}

std::vector<FamilyMaker::Member> FamilyMaker::members_of(std::span<const Value> values,
                                                         const GetRequest& request) {
  const source::FamilySpec& family = spec();
  const auto parameter = static_cast<std::size_t>(family.parameter);
  const source::Manifest& manifest = origin_->manifest;
  if (parameter < values.size() && values[parameter].kind != Value::Kind::unset) {
    throw Error(Errc::invalid_argument,
                "template " + base::quote(manifest.name) + ", parameter " +
                    base::quote(manifest.parameters[parameter].name) +
                    ": each launch of the family picks it by " +
                    base::quote(manifest.arguments[static_cast<std::size_t>(family.by)].name) +
                    "; leave it out, or get the one kernel");
  }
  std::vector<Value> all(values.begin(), values.end());
  all.resize(std::max(all.size(), parameter + 1));
  std::vector<Member> out;
  for (const std::int64_t edge : family.edges.all()) {
    all[parameter] = Value(edge);
    Member& member = out.emplace_back(Member{maker_.calls().want(all, request, Disk::left_alone)});
    if (!is_open(maker_.core(), member.wanted, request.asked()))
      member.kernel = maker_.ready(member.wanted, source::Which::kernel);
  }
  return out;
}

/// Records and counts all members that are not ready, so that a plan of what was missing has the whole family.
void FamilyMaker::admit(const std::vector<Member>& members, const GetRequest& request) {
  const auto is_ready = [](const Member& member) { return member.kernel != nullptr; };
  if (std::all_of(members.begin(), members.end(), is_ready)) return;  // without a question to the driver
  const bool captures = maker_.captures(request);
  std::vector<Refusal> refusals;
  for (const Member& member : members) {
    if (member.kernel) continue;
    try {
      // A thread of kiln's own admits a member whose tuned choice is still open.
      if (captures || !is_open(maker_.core(), member.wanted, request.asked()))
        maker_.admit(member.wanted, request);
      if (captures) maker_.refuse_in_capture(member.wanted);
    } catch (const Error& error) {
      if (error.code() != Errc::not_ready) throw;
      refusals.push_back({&member, error.what()});
    }
  }
  if (!refusals.empty()) refuse(refusals, members.size());
}

void FamilyMaker::make(std::vector<Member>& members, const GetRequest& request, const KeepAlive& keep) {
  for (Member& member : members)
    if (!member.kernel) member.making = behind_.begin(member.wanted, request, keep);
  std::vector<Refusal> refusals;
  for (Member& member : members) {
    if (member.kernel) continue;
    const auto until = request.deadline.at();
    if (until != base::Clock::time_point::max() &&
        member.making.wait_until(until) != std::future_status::ready) {
      throw Error(Errc::deadline, "the deadline passed before the family of " + member.wanted.name() +
                                      " was ready: its members are made in the background");
    }
    try {
      member.kernel = member.making.get();
    } catch (const Error& error) {
      if (error.code() != Errc::not_ready) throw;
      refusals.push_back({&member, error.what()});
    }
  }
  if (!refusals.empty()) refuse(refusals, members.size());
}

void FamilyMaker::refuse(const std::vector<Refusal>& refusals, std::size_t members) const {
  std::string names, rows;
  for (const Refusal& refusal : refusals) {
    names += (names.empty() ? "" : ", ") + refusal.member->wanted.name();
    if (&refusal != &refusals.front()) rows += source::trace_row(refusal.member->wanted.resolved);
  }
  const Refusal& first = refusals.front();
  // The reason of the first ends with the row of a plan that makes it ready. The rows of the others follow it.
  if (!first.why.ends_with(source::trace_row(first.member->wanted.resolved))) rows.clear();
  throw Error(Errc::not_ready, std::to_string(refusals.size()) + " of the " + std::to_string(members) +
                                   " members of family " + base::quote(origin_->manifest.name) +
                                   " are not ready: " + names + ". " + first.why + rows);
}

const KernelFamily& FamilyMaker::keep_family(const std::vector<Member>& members) {
  KernelTables::State& state = tables_.state.get();
  const std::lock_guard lock(state.mutex);
  std::vector<const LoadedKernel*> kernels;
  for (const Member& member : members) kernels.push_back(state.newest(member.kernel));
  for (const auto& known : state.families)
    if (known->has(kernels)) return *known;
  return *state.families.emplace_back(std::make_unique<KernelFamily>(spec(), kernels));
}

}  // namespace kiln::runtime
