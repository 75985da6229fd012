#include "tools/kiln/fleet/missed.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "cache/fleet/redis/backend.hpp"
#include "cache/fleet/redis/client.hpp"
#include "cache/fleet/redis/keys.hpp"
#include "cache/trust/minisign.hpp"
#include "instantiate/instantiate.hpp"
#include "instantiate/plan.hpp"
#include "instantiate/trace_text.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kMostRow = 4096, kIdsAtOnce = 1000, kRowsAtOnce = 64;
constexpr std::uint64_t kPageReply = std::uint64_t{64} << 20;
/// Of one run: twice what nodes leave in the stream. Whoever writes more of it keeps no job from its plan.
constexpr std::size_t kMostRead = 20'000;
constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;

/// Throws Error for what is one specialisation on no machine.
source::PlannedSpecialization parsed(const fleet::Reply& fields) {
  const auto bad = [](const char* why) { throw Error(Errc::invalid_argument, why); };
  if (fields.elements.size() != 2 || fields.elements[0].text != "row") bad("no row");
  const std::string& text = fields.elements[1].text;
  if (text.size() > kMostRow) bad("too long");
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 && c != '\n'; }))
    bad("control characters");
  auto planned = source::parse_plan(std::string(source::kTraceHeader) + text, "missed");
  if (planned.size() != 1) bad("not one specialisation");
  return std::move(planned.front());
}

/// Throws Error for what means nothing here.
source::Resolved resolved(Context& context, const source::PlannedSpecialization& row) {
  const auto origin = context.service().catalog().open(row.template_name);
  std::vector<NamedValue> named;
  for (const Parameter& p : row.values) named.push_back({p.name, Value(p.value)});
  return source::resolve(origin->manifest, source::positional(origin->manifest, named),
                         row.arch.empty() ? context.target_arch() : base::Arch::parse(row.arch));
}

std::string name_of(const source::Resolved& made) {
  return made.specialization.to_string() + ' ' + made.arch.name();
}

}  // namespace

MissedRows::MissedRows(Context& context, fleet::Tier& tier) : tier_(tier), directory_("kiln-missed") {
  std::string text(source::kTraceHeader);
  read(context, text);
  if (left_out_ > 0) base::warn(counted(left_out_, "reported row") + " left out, the first because: " + why_);
  if (fault_)
    base::warn(
        "the rows that nodes reported cannot be read to their end: " + fault_.text +
        (fault_.down ? "" : ". 'XTRIM " + std::string(fleet::kMissingKey) + " MAXLEN 0' removes them"));
  base::write_file(file(), text);
}

void MissedRows::read(Context& context, std::string& text) {
  const std::string stream(fleet::kMissingKey);
  std::string from = "-";
  for (std::size_t count = kRowsAtOnce; read_ < kMostRead && bytes_ < kMostBytes;) {
    const fleet::Answer page =
        ask(fleet::redis_client(tier_.backend()),
            {{"XRANGE", stream, from, "+", "COUNT", std::to_string(count)}, stream, kPageReply});
    // Too large together, for us or for what the server lets a client have: one by one, and more again later.
    if ((page.fault == fleet::Fault::too_large || page.fault == fleet::Fault::closed) && count > 1) {
      count = 1;
      continue;
    }
    fault_.note(page);
    if (!page || page.reply.elements.empty()) return;
    for (const fleet::Reply& entry : page.reply.elements) {
      if (entry.elements.size() != 2) return fault_.note(fleet::Fault::protocol, "XRANGE: no such answer");
      take(context, entry, text);
      from = '(' + entry.elements[0].text;
    }
    count = std::min(2 * count, kRowsAtOnce);
  }
}

void MissedRows::take(Context& context, const fleet::Reply& entry, std::string& text) {
  const std::string& id = entry.elements[0].text;
  ++read_;
  for (const fleet::Reply& field : entry.elements[1].elements) bytes_ += field.text.size();
  bool is_row = false;
  try {
    const source::PlannedSpecialization row = parsed(entry.elements[1]);
    is_row = true;
    const source::Resolved made = resolved(context, row);
    std::vector<std::string>& ids = ids_[name_of(made)];
    if (ids.empty()) text += source::trace_row(made);
    ids.push_back(id);
  } catch (const Error& error) {
    if (!is_row) garbage_.push_back(id);
    if (++left_out_ == 1) why_ = trust::printable(error.what(), 200);
  }
}

void MissedRows::forget(const PrewarmPlan& plan, const PrewarmResult& result) {
  std::vector<std::string> gone = std::move(garbage_);
  for (std::size_t i = 0; i < plan.tasks.size(); ++i) {
    if (result.tasks[i].state != TaskResult::State::done) continue;
    if (const auto made = ids_.find(name_of(plan.tasks[i].resolved)); made != ids_.end())
      gone.insert(gone.end(), made->second.begin(), made->second.end());
  }
  const std::string stream(fleet::kMissingKey);
  for (std::size_t from = 0; from < gone.size(); from += kIdsAtOnce) {
    std::vector<std::string> words{"XDEL", stream};
    for (std::size_t i = from; i < std::min(from + kIdsAtOnce, gone.size()); ++i) words.push_back(gone[i]);
    ask(fleet::redis_client(tier_.backend()), {std::move(words), stream, 1024});
  }
}

}  // namespace kiln::cli
