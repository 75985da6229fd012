#include "progress.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "output.hpp"

namespace kiln::cli {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr std::size_t kBarColumns = 24;

/// Whole seconds: more would only flicker.
std::string time_left(double seconds) {
  const auto whole = static_cast<long>(std::ceil(seconds));
  return whole < 60 ? std::to_string(whole) + 's'
                    : std::to_string(whole / 60) + 'm' + std::to_string(whole % 60) + 's';
}

}  // namespace

Progress::Progress(std::size_t total, bool lines_on_stdout)
    : total_(total), bar_(standard_error().interactive), lines_on_stdout_(lines_on_stdout) {
  if (!bar_) return;
  ticker_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    while (!stop_.wait_for(lock, kTick, [this] { return stopping_; })) draw_locked();
  });
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
  running_.push_back(what);
}

void Progress::finished(const std::string& what, const std::string& line, bool matters) {
  const std::lock_guard lock(mutex_);
  ++done_;
  if (const auto it = std::find(running_.begin(), running_.end(), what); it != running_.end())
    running_.erase(it);
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
  done_ = std::min(done, total_);
}

void Progress::remark(const std::string& text) {
  const std::lock_guard lock(mutex_);
  clear_locked();
  std::fprintf(stderr, "%s\n", text.c_str());
}

std::string Progress::bar_locked(std::size_t width) const {
  const double elapsed = std::chrono::duration<double>(base::Clock::now() - start_).count();
  const std::size_t filled = total_ ? kBarColumns * done_ / total_ : kBarColumns;
  std::string out = "[" + std::string(filled, '=') + (filled < kBarColumns ? ">" : "") +
                    std::string(kBarColumns - std::min(kBarColumns, filled + 1), ' ') + "] " +
                    std::to_string(done_) + '/' + std::to_string(total_);
  if (done_ > 0 && elapsed > 0.2) {
    const double rate = static_cast<double>(done_) / elapsed;
    char text[64];
    std::snprintf(text, sizeof text, rate < 10 ? "  %.1f/s" : "  %.0f/s", rate);
    out += text;
    if (done_ < total_) out += "  " + time_left(static_cast<double>(total_ - done_) / rate) + " left";
  }
  if (!running_.empty()) {
    out += "  " + running_.front();
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
