#include "interrupt.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "context.hpp"

namespace kiln::cli {
namespace {

std::atomic<bool> g_polite{false}, g_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");

void on_interrupt(int) {
  if (g_polite && !g_requested.exchange(true)) return;
  ::_exit(kInterrupted);
}

}  // namespace

void install_signal_handlers() noexcept {
  struct sigaction action {};
  action.sa_handler = &on_interrupt;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  action.sa_handler = SIG_DFL;  // a parent may have left it ignored
  ::sigaction(SIGPIPE, &action, nullptr);
}

PoliteInterrupt::PoliteInterrupt() noexcept { g_polite = true; }
PoliteInterrupt::~PoliteInterrupt() { g_polite = false; }
bool PoliteInterrupt::requested() noexcept { return g_requested; }

}  // namespace kiln::cli
