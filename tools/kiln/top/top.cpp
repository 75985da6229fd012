// kiln top: shows live which processes compile, wait or hold locks.
#include "tools/kiln/top/top.hpp"

#include <csignal>
#include <cstdint>

#include "kiln/error.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/top/frame.hpp"
#include "tools/kiln/top/live_screen.hpp"

namespace kiln::cli {
namespace {

struct TopArguments {
  double interval_s = 1;
  bool once = false;
  Option interval;
};

/// Returns 0, or 130 after Ctrl-C. A signal that ends it is raised again after the terminal is restored.
int watch(TopSeries& series, std::chrono::milliseconds interval) {
  int signal = 0;
  {
    LiveScreen screen;
    for (auto wake = LiveScreen::Wake::redraw; wake != LiveScreen::Wake::quit; wake = screen.wait(interval))
      if (!screen.draw(frame_of(series.take(), standard_output(), LiveScreen::rows()))) break;
    signal = screen.signal();
  }
  if (signal == SIGINT) return kInterrupted;
  if (signal != 0) ::raise(signal);
  return kDone;
}

int top(const Context& context, const TopArguments& arguments) {
  const bool live = !arguments.once && !context.json && standard_output().interactive;
  if (arguments.interval.given() && !live)
    throw Error(Errc::invalid_argument,
                "--interval is for a terminal; elsewhere, with --once and with --json there is one snapshot");
  TopSeries series(context.config());
  if (live)
    return watch(series, std::chrono::milliseconds(static_cast<std::int64_t>(arguments.interval_s * 1000)));
  const TopSnapshot snapshot = series.take();
  if (context.json) {
    Json out{{"schema", context.schema()}};
    out.update(json_of(snapshot));
    print_json(out);
    return kDone;
  }
  for (const std::string& line : frame_of(snapshot, standard_output(), 0)) print(line + '\n');
  return kDone;
}

}  // namespace

void add_top(Command app, Context& context) {
  const auto arguments = std::make_shared<TopArguments>();
  const Command sub = context.add_command(app, "top", "Show which processes compile, wait or hold a lock now",
                                          [&context, arguments] { return top(context, *arguments); });
  arguments->interval =
      sub.option("--interval", arguments->interval_s, "Time between two snapshots on a terminal; default: 1")
          .type_name("SECONDS")
          .range(0.1, 3600.0);
  sub.flag("--once", arguments->once, "Print one snapshot, even on a terminal");
  sub.footer(
      "compiling: the process compiles, until its record is stored. queued: its turn to compile has not "
      "come\n"
      "(slots, memory, -j). waiting: it waits for another process's compile of the same kernel. fleet: it\n"
      "waits for another node's compile. stopped: the compiling process is stopped. left behind: the\n"
      "compiling process was killed, and the next caller compiles. holding: a process holds a kernel's lock\n"
      "and has not said why. writing: it holds the store's gate.\n"
      "A table has the spaces of other JIT compilers, whose blobs are compiled and waited for, too. Its "
      "counts\n"
      "are since the store was made; a process adds its own every ten seconds. FAILED: not stored, damaged,\n"
      "or missed after the seal.\n"
      "Processes of other PID namespaces are shown as HOST/PID(ns). On a terminal, the screen is redrawn\n"
      "until q or Ctrl-C; elsewhere, one snapshot is printed.\n"
      "Exit status: 0 done, 1 failed, 130 interrupted.");
}

}  // namespace kiln::cli
