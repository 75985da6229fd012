#include "tools/kiln/prewarm/missed.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "cache/trust/minisign.hpp"
#include "instantiate/instantiate.hpp"
#include "instantiate/plan.hpp"
#include "instantiate/trace_text.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kMostRow = 4096, kRowsAtOnce = 64;
/// Limits of one run: twice the number of rows that nodes leave on a server. A client that writes more rows
/// cannot keep a job from its plan.
constexpr std::size_t kMostRead = 20'000;
constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;

/// Throws Error for a row that is no single specialisation, on this or any machine.
source::PlannedSpecialization parsed(const fleet::MissedRow& row) {
  const auto bad = [](const char* why) { throw Error(Errc::invalid_argument, why); };
  if (!row.text) bad("the row cannot be read");
  const std::string& text = *row.text;
  if (text.size() > kMostRow) bad("the row is too long");
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 && c != '\n'; }))
    bad("the row has control characters");
  auto planned = source::parse_plan(std::string(source::kTraceHeader) + text, "missed");
  if (planned.size() != 1) bad("the row is not exactly one specialisation");
  return std::move(planned.front());
}

/// Throws Error for a row that no template of this machine accepts.
source::Resolved resolved(Context& context, const source::PlannedSpecialization& row) {
  const auto origin = context.service().catalog().open(row.template_name);
  std::vector<NamedValue> named;
  for (const Parameter& p : row.values) named.push_back({p.name, Value(p.value)});
  return source::resolve(origin->manifest, source::positional(origin->manifest, named),
                         row.arch.empty() ? context.target_arch() : base::Arch::parse(row.arch));
}

std::string specialization_name(const source::Resolved& made) {
  return made.specialization.to_string() + ' ' + made.arch.name();
}

}  // namespace

MissedRows::MissedRows(Context& context, fleet::Tier& tier) : tier_(tier), directory_("kiln-missed") {
  std::string text(source::kTraceHeader);
  read(context, text);
  if (left_out_ > 0)
    base::warn(counted(left_out_, "reported row was", "reported rows were") +
               " left out, the first because: " + why_);
  if (fault_) {
    const std::string removal = fault_.down ? "" : tier.backend().upkeep().missed_removal();
    base::warn("the rows that nodes reported cannot be read to their end: " + fault_.text +
               (removal.empty() ? "" : ". " + removal + " removes them"));
  }
  base::write_file(file(), text);
}

void MissedRows::read(Context& context, std::string& text) {
  std::string last;
  for (std::size_t count = kRowsAtOnce; read_ < kMostRead && bytes_ < kMostBytes;) {
    const fleet::MissedPage page = tier_.backend().upkeep().missed(last, count);
    // The page is too large for us or for the server's client limit. Reads single rows, then doubles the
    // count again.
    if ((page.fault == fleet::Fault::too_large || page.fault == fleet::Fault::closed) && count > 1) {
      count = 1;
      continue;
    }
    for (const fleet::MissedRow& row : page.rows) take(context, row, text);
    fault_.note(page);
    if (!page || page.rows.empty()) return;
    last = page.rows.back().id;
    count = std::min(2 * count, kRowsAtOnce);
  }
}

void MissedRows::take(Context& context, const fleet::MissedRow& row, std::string& text) {
  ++read_;
  bytes_ += row.bytes;
  bool is_row = false;
  try {
    const source::PlannedSpecialization planned = parsed(row);
    is_row = true;
    const source::Resolved made = resolved(context, planned);
    std::vector<std::string>& ids = ids_[specialization_name(made)];
    if (ids.empty()) text += source::trace_row(made);
    ids.push_back(row.id);
  } catch (const Error& error) {
    if (!is_row) garbage_.push_back(row.id);
    if (++left_out_ == 1) why_ = trust::printable(error.what(), 200);
  }
}

void MissedRows::forget(const PrewarmPlan& plan, const PrewarmResult& result) {
  std::vector<std::string> gone = std::move(garbage_);
  for (std::size_t i = 0; i < plan.tasks.size(); ++i) {
    if (result.tasks[i].state != TaskResult::State::done) continue;
    if (const auto made = ids_.find(specialization_name(plan.tasks[i].resolved)); made != ids_.end())
      gone.insert(gone.end(), made->second.begin(), made->second.end());
  }
  if (!gone.empty()) tier_.backend().upkeep().forget(gone);  // rows that stay are read by the next job
}

}  // namespace kiln::cli
