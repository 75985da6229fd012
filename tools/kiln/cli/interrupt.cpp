#include "tools/kiln/cli/interrupt.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "tools/kiln/cli/context.hpp"

namespace kiln::cli {
namespace {

std::atomic<bool> g_polite{false}, g_requested{false}, g_pipe_closed{false};
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");

void on_interrupt(int) {
  if (g_polite && !g_requested.exchange(true)) return;
  ::_exit(kInterrupted);
}

void on_closed_pipe(int) { g_pipe_closed = g_requested = true; }

void set_handler(int signal, void (*handler)(int)) noexcept {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void install_signal_handlers() noexcept {
  set_handler(SIGINT, &on_interrupt);
  set_handler(SIGPIPE, SIG_DFL);  // a parent may have left it ignored
}

PoliteInterrupt::PoliteInterrupt() noexcept { g_polite = true; }
PoliteInterrupt::~PoliteInterrupt() { g_polite = false; }
bool PoliteInterrupt::requested() noexcept { return g_requested; }

void defer_closed_pipe() noexcept { set_handler(SIGPIPE, &on_closed_pipe); }
bool pipe_closed() noexcept { return g_pipe_closed; }
void end_if_pipe_closed() noexcept {
  if (!g_pipe_closed) return;
  set_handler(SIGPIPE, SIG_DFL);
  ::raise(SIGPIPE);
}

}  // namespace kiln::cli
