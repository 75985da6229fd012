#include "tools/kiln/cli/progress.hpp"
#include "tools/kiln/cli/table.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <system_error>

#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr std::size_t kBarColumns = 20;
/// The rate covers the last kRateSteps steps, or all steps of the last kRatePeriod when those are more.
constexpr std::size_t kRateSteps = 32;
constexpr auto kRatePeriod = std::chrono::seconds(10);

/// Whole seconds, because a fraction would only flicker.
std::string in_seconds(double seconds) {
  const auto whole = static_cast<long>(std::ceil(seconds));
  return whole < 60 ? std::to_string(whole) + 's'
                    : std::to_string(whole / 60) + 'm' + std::to_string(whole % 60) + 's';
}

}  // namespace

Progress::Progress(std::size_t total, bool lines_on_stdout, std::function<void(Progress&)> on_tick)
    : total_(total),
      bar_(standard_error().interactive),
      lines_on_stdout_(lines_on_stdout),
      on_tick_(std::move(on_tick)) {
  if (!bar_ && !on_tick_) return;
  try {
    ticker_ = std::thread([this] { tick(); });
  } catch (const std::system_error&) {  // at the thread limit: print lines, since nothing draws a bar
    bar_ = false;
  }
}

void Progress::tick() {
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, kTick, [this] { return stopping_; })) {
    if (on_tick_) {
      lock.unlock();
      on_tick_(*this);
      lock.lock();
    }
    if (bar_) draw_locked();
  }
}

Progress::~Progress() {
  if (!ticker_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  ticker_.join();
  clear_locked();
}

void Progress::started(const std::string& what) {
  const std::lock_guard lock(mutex_);
  running_.emplace_back(what, base::Clock::now());
}

void Progress::step_locked(std::size_t done) {
  done_ = done;
  const auto now = base::Clock::now();
  steps_.emplace_back(now, done);
  while (steps_.size() > kRateSteps && steps_[1].first < now - kRatePeriod) steps_.pop_front();
}

void Progress::finished(const std::string& what, const std::string& line, bool matters) {
  const std::lock_guard lock(mutex_);
  step_locked(done_ + 1);
  failed_ += matters;
  const auto it =
      std::find_if(running_.begin(), running_.end(), [&](const auto& r) { return r.first == what; });
  if (it != running_.end()) running_.erase(it);
  if (bar_ && !matters) return;
  clear_locked();
  const std::string total = std::to_string(total_), done = std::to_string(done_);
  const std::string text =
      '[' + std::string(total.size() - done.size(), ' ') + done + '/' + total + "] " + line + '\n';
  std::FILE* out = bar_ || !lines_on_stdout_ ? stderr : stdout;
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

void Progress::reached(std::size_t done) {
  const std::lock_guard lock(mutex_);
  step_locked(std::min(done, total_));
}

void Progress::remark(const std::string& text) {
  const std::lock_guard lock(mutex_);
  clear_locked();
  std::fprintf(stderr, "%s\n", text.c_str());
}

std::string Progress::bar_locked(std::size_t width) const {
  const auto seconds_since = [now = base::Clock::now()](base::Clock::time_point then) {
    return std::chrono::duration<double>(now - then).count();
  };
  const std::size_t filled = total_ ? kBarColumns * done_ / total_ : kBarColumns;
  std::string out = "[" + std::string(filled, '=') + (filled < kBarColumns ? ">" : "") +
                    std::string(kBarColumns - std::min(kBarColumns, filled + 1), ' ') + "] " +
                    std::to_string(done_) + '/' + std::to_string(total_);
  const auto& [since, before] = steps_.front();
  if (const double elapsed = seconds_since(since); done_ > before && elapsed > 0.2) {
    const double rate = static_cast<double>(done_ - before) / elapsed;
    char text[64];
    std::snprintf(text, sizeof text, rate < 10 ? "  %.1f/s" : "  %.0f/s", rate);
    out += text;
    if (done_ < total_) out += "  " + in_seconds(static_cast<double>(total_ - done_) / rate) + " left";
  }
  if (failed_) out += "  " + std::to_string(failed_) + " failed";
  if (!running_.empty()) {
    const auto& [what, started_at] = running_.front();
    out += "  " + in_seconds(std::floor(seconds_since(started_at))) + ' ' + what;
    if (running_.size() > 1) out += " and " + std::to_string(running_.size() - 1) + " more";
  }
  return clipped(out, width ? width - 1 : 79);
}

void Progress::draw_locked() {
  const std::string text = "\r\033[K" + bar_locked(standard_error().width);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::clear_locked() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace kiln::cli
