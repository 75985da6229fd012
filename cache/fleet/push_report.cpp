// Rows that this node missed, on their way to the job that fills the tier. Each is kept until the server has
// it: whoever missed it says so once.
#include "base/log.hpp"
#include "cache/fleet/redis/keys.hpp"
#include "cache/fleet/tier_parts.hpp"

namespace kiln::fleet {
namespace {

constexpr std::size_t kMostReported = 10'000, kMostRowText = 4096, kRowsAtOnce = 64;
constexpr const char* kStreamLength = "10000";
constexpr std::uint64_t kSmallReply = 4096;
constexpr auto kReportPatience = std::chrono::seconds(10);
constexpr auto kReportPause = std::chrono::seconds(3);

Command report_of(const std::string& row) {
  return {{"XADD", std::string(kMissingKey), "MAXLEN", "~", kStreamLength, "*", "row", row},
          std::string(kMissingKey),
          kSmallReply};
}

}  // namespace

void Tier::report_missing(std::string row) noexcept try {
  if (row.empty() || row.size() > kMostRowText) return;
  Impl::Writing& writing = impl_->state.get().writing;
  const std::lock_guard lock(writing.mutex);
  if (writing.closing || writing.reported.size() >= kMostReported) return;
  const auto [place, is_new] = writing.reported.insert(std::move(row));
  if (!is_new) return;
  try {
    impl_->start_writing(writing);
    writing.rows.push_back(*place);
  } catch (...) {
    writing.reported.erase(place);  // no thread, no memory: the next miss of it says so again
    return;
  }
  ++writing.rows_untried;
  writing.work.notify_one();
} catch (...) {
}

void Tier::Impl::write_rows(Writing& writing, std::unique_lock<std::mutex>& lock) noexcept {
  bool works = true;
  while (works && !writing.rows.empty()) {
    std::size_t sent = 0;
    try {
      std::vector<Command> commands;
      for (const std::string& row : writing.rows) {
        if (commands.size() == kRowsAtOnce) break;
        commands.push_back(report_of(row));
      }
      lock.unlock();
      const std::vector<Answer> answers = client.call(commands, base::Deadline::after(kReportPatience));
      for (const Answer& answer : answers) {
        works = answer || answer.fault == Fault::refused;  // what is refused once is refused for ever
        if (!works) break;
        if (answer)
          ++counts->remote_reported;
        else
          warn(answer.fault, " takes no reports of this node: ", answer.detail);
        ++sent;
      }
      works = works && sent == commands.size();
    } catch (...) {  // no memory
      works = false;
    }
    if (!lock.owns_lock()) lock.lock();
    writing.rows.erase(writing.rows.begin(), writing.rows.begin() + static_cast<std::ptrdiff_t>(sent));
    writing.rows_untried = std::min(writing.rows_untried, writing.rows.size());
  }
  writing.rows_untried = 0;
  writing.again = base::Clock::now() + kReportPause;
  writing.progress.notify_all();
}

}  // namespace kiln::fleet
