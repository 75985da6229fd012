#include "tools/kiln/top/live_screen.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

constexpr const char* kEnter = "\033[?1049h\033[?25l";  // alternate screen, no cursor
constexpr const char* kLeave = "\033[?25h\033[?1049l";
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};

bool put(const char* text) { return std::fputs(text, stdout) >= 0 && std::fflush(stdout) == 0; }

}  // namespace

LiveScreen::LiveScreen() {
  keys_ = ::isatty(STDIN_FILENO) && ::tcgetattr(STDIN_FILENO, &before_) == 0;
  sigset_t ours;
  ::sigemptyset(&ours);
  for (const int number : kSignals) ::sigaddset(&ours, number);
  signals_ = base::Fd(::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) throw Error(Errc::io, std::string("cannot watch for signals: ") + std::strerror(errno));
  ::sigprocmask(SIG_BLOCK, &ours, &mask_before_);
  enter();
}

LiveScreen::~LiveScreen() {
  leave();
  ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

void LiveScreen::enter() {
  if (keys_) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // keys arrive at once; Ctrl-C stays a signal
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  }
  put(kEnter);
}

void LiveScreen::leave() noexcept {
  put(kLeave);
  if (keys_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
}

std::size_t LiveScreen::rows() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

bool LiveScreen::draw(const std::vector<std::string>& lines) {
  std::string out = "\033[H";
  const std::size_t most = rows();
  for (std::size_t i = 0; i < lines.size() && i < most; ++i) {
    if (i > 0) out += "\r\n";  // line ends come before lines, so that the last line does not scroll
    out += lines[i] + "\033[K";
  }
  return put((out + "\033[J").c_str());
}

LiveScreen::Wake LiveScreen::wait(std::chrono::milliseconds most) {
  pollfd ready[] = {{signals_.get(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
  const int got = ::poll(ready, keys_ ? 2 : 1, static_cast<int>(most.count()));
  if (got <= 0) return Wake::time;
  if (ready[0].revents) return on_signal();
  return on_key();
}

LiveScreen::Wake LiveScreen::on_signal() {
  signalfd_siginfo info{};
  if (::read(signals_.get(), &info, sizeof info) != sizeof info) return Wake::time;
  switch (info.ssi_signo) {
    case SIGTSTP:
      leave();
      ::raise(SIGSTOP);
      enter();
      return Wake::redraw;
    case SIGCONT:
    case SIGWINCH:
      return Wake::redraw;
    default:
      signal_ = static_cast<int>(info.ssi_signo);
      return Wake::quit;
  }
}

LiveScreen::Wake LiveScreen::on_key() {
  char key = 0;
  if (::read(STDIN_FILENO, &key, 1) != 1) return Wake::quit;  // the terminal is gone
  return key == 'q' || key == 'Q' ? Wake::quit : Wake::redraw;
}

}  // namespace kiln::cli
