#include "remote_missed.hpp"

#include <algorithm>
#include <set>

#include "base/log.hpp"
#include "bundle/minisign.hpp"
#include "kiln/error.hpp"
#include "output.hpp"
#include "remote/redis_keys.hpp"
#include "source/instantiate.hpp"
#include "source/plan.hpp"
#include "source/record_text.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kMostRow = 4096, kIdsAtOnce = 1000;
constexpr std::uint64_t kStreamReply = std::uint64_t{64} << 20;

/// The row's own text again, made from what it means; throws Error for what means nothing here.
std::string checked(Context& context, const std::string& text) {
  const auto bad = [](const char* why) { throw Error(Errc::invalid_argument, why); };
  if (text.size() > kMostRow) bad("too long");
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 && c != '\n'; }))
    bad("control characters");
  const auto planned = source::parse_plan(std::string(source::kRecordHeader) + text, "missed");
  if (planned.size() != 1) bad("not one specialisation");
  const source::PlannedSpecialization& row = planned.front();
  const auto origin = context.service().catalog().open(row.template_name);
  std::vector<NamedValue> named;
  for (const Parameter& p : row.values) named.push_back({p.name, Value(p.value)});
  const source::Resolved resolved =
      source::resolve(origin->manifest, source::positional(origin->manifest, named),
                      row.arch.empty() ? context.target_arch() : base::Arch::parse(row.arch));
  return source::record_row(resolved);
}

}  // namespace

MissedRows::MissedRows(Context& context, remote::Tier& tier) : tier_(tier), directory_("kiln-missed") {
  const std::string stream(remote::kMissingKey);
  const remote::Answer answer = ask(tier.client(), {{"XRANGE", stream, "-", "+"}, stream, kStreamReply});
  if (!answer)
    throw Error(Errc::io,
                "the rows that nodes reported cannot be read: " + text_of(answer.fault, answer.detail));
  std::set<std::string> rows;
  std::size_t bad = 0;
  std::string why;
  for (const remote::Reply& entry : answer.reply.elements) {
    if (entry.elements.size() != 2) continue;
    ids_.push_back(entry.elements[0].text);
    const auto& fields = entry.elements[1].elements;
    try {
      if (fields.size() != 2 || fields[0].text != "row") throw Error(Errc::invalid_argument, "no row");
      rows.insert(checked(context, fields[1].text));
    } catch (const Error& error) {
      if (++bad == 1) why = bundle::printable(error.what(), 200);
    }
  }
  if (bad > 0) base::warn(counted(bad, "reported row") + " left out, the first because: " + why);
  std::string text(source::kRecordHeader);
  for (const std::string& row : rows) text += row;
  base::write_file(file(), text);
  found_ = rows.size();
}

void MissedRows::forget() {
  for (std::size_t from = 0; from < ids_.size(); from += kIdsAtOnce) {
    const std::string stream(remote::kMissingKey);
    std::vector<std::string> words{"XDEL", stream};
    for (std::size_t i = from; i < std::min(from + kIdsAtOnce, ids_.size()); ++i) words.push_back(ids_[i]);
    ask(tier_.client(), {std::move(words), stream, 1024});
  }
}

}  // namespace kiln::cli
