// kiln top on a terminal: it redraws the screen, and restores the terminal however it ends.
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <csignal>

#include "support/places.hpp"
#include "tools/terminal.hpp"
#include "tools/top/fixture.hpp"

namespace kiln::test {
namespace {

/// kiln top on a terminal. The test types on the terminal, resizes it and reads it.
class LiveTop : public Top {
 protected:
  static constexpr const char* kEnter = "\033[?1049h";
  static constexpr const char* kLeave = "\033[?1049l";

  void begin(unsigned short columns, unsigned short rows, const Environment& more = {}) {
    Environment all = environment();
    for (const auto& [name, value] : more) all[name] = value;
    all["TERM"] = "xterm";
    std::vector<std::string> settings;
    for (const auto& [name, value] : all) settings.push_back(name + '=' + value);
    std::vector<char*> envp;
    for (const std::string& s : settings) envp.push_back(const_cast<char*>(s.c_str()));
    envp.push_back(nullptr);
    char* const argv[] = {const_cast<char*>(places::kCommand), const_cast<char*>("top"),
                          const_cast<char*>("--interval"), const_cast<char*>("0.1"), nullptr};
    winsize size{};
    size.ws_row = rows, size.ws_col = columns;
    int statuses[2], held[2];
    ASSERT_EQ(::pipe2(statuses, O_CLOEXEC), 0);
    ASSERT_EQ(::pipe2(held, O_CLOEXEC), 0);
    shell_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (shell_ == 0) {
      ::close(held[1]);
      be_shell(argv, envp.data(), statuses[1], held[0]);
    }
    ::close(statuses[1]), ::close(held[0]);
    statuses_ = base::Fd(statuses[0]), held_ = base::Fd(held[1]);
    ASSERT_EQ(::tcgetattr(terminal_, &before_), 0);  // the command waits until the modes are saved
    ASSERT_EQ(::write(held_.get(), "", 1), 1);
    pid_ = next_status();
    read_until(kEnter);
  }
  /// Leads the terminal's session like a shell. It writes the command's pid, then each status of
  /// the command, and stays until it is released. When a session leader ends, the kernel may drop
  /// the last output, and resets the modes.
  [[noreturn]] static void be_shell(char* const argv[], char* const envp[], int statuses, int held) {
    constexpr int kKeys[] = {SIGINT, SIGQUIT, SIGTSTP};
    for (const int number : kKeys) ::signal(number, SIG_IGN);
    char byte;
    if (::read(held, &byte, 1) != 1) ::_exit(1);
    int said = ::fork();
    if (said == 0) {
      for (const int number : kKeys) ::signal(number, SIG_DFL);
      ::execve(places::kCommand, argv, envp);
      ::_exit(127);
    }
    const pid_t pid = said;
    do {
      if (::write(statuses, &said, sizeof said) != sizeof said) ::_exit(1);
      if (said != pid && !WIFSTOPPED(said)) break;
    } while (::waitpid(pid, &said, WUNTRACED) == pid);
    ::_exit(::read(held, &byte, 1) == 1 ? 0 : 1);
  }
  int next_status() {
    int out = -1;
    EXPECT_EQ(::read(statuses_.get(), &out, sizeof out), static_cast<ssize_t>(sizeof out));
    return out;
  }
  /// Reads until `text` appears. Clears earlier output first.
  void read_until(const std::string& text) {
    screen_.clear();
    char buffer[4096];
    for (ssize_t got; screen_.find(text) == std::string::npos;) {
      if ((got = ::read(terminal_, buffer, sizeof buffer)) <= 0) {
        ADD_FAILURE() << "ended without '" << text << "':\n" << screen_;
        return;
      }
      screen_.append(buffer, static_cast<std::size_t>(got));
    }
  }
  void type(const std::string& keys) {
    ASSERT_EQ(::write(terminal_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  /// Waits for the end of the command and checks that the terminal is restored.
  /// Returns the exit status as a shell shows it.
  int end() {
    char buffer[4096];
    pollfd ready{terminal_, POLLIN, 0};
    // The last output may arrive after the command's end. Waits up to 60 s for it, then reads the rest.
    while (::poll(&ready, 1, screen_.rfind(kLeave) == std::string::npos ? 60'000 : 100) > 0) {
      const ssize_t got = ::read(terminal_, buffer, sizeof buffer);
      if (got <= 0) break;
      screen_.append(buffer, static_cast<std::size_t>(got));
    }
    const int status = next_status();
    termios after{};
    EXPECT_EQ(::tcgetattr(terminal_, &after), 0);
    EXPECT_EQ(after.c_lflag, before_.c_lflag);
    EXPECT_EQ(after.c_lflag & (ICANON | ECHO), static_cast<tcflag_t>(ICANON | ECHO));
    const std::size_t left = screen_.rfind(kLeave);
    EXPECT_NE(left, std::string::npos) << screen_;
    EXPECT_EQ(screen_.find(kEnter, left), std::string::npos);
    EXPECT_NE(screen_.find("\033[?25h"), std::string::npos) << "no cursor";
    EXPECT_EQ(::write(held_.get(), "", 1), 1);
    ::waitpid(shell_, nullptr, 0);
    ::close(terminal_);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  int terminal_ = -1;
  pid_t shell_ = -1, pid_ = -1;
  base::Fd statuses_, held_;
  termios before_{};
  std::string screen_;
};

TEST_F(LiveTop, IsRedrawnAndEndsWithQ) {
  begin(100, 30);
  read_until("no process compiles");
  const auto holder = compiling(1);
  read_until("kernel 1");
  termios now{};
  ASSERT_EQ(::tcgetattr(terminal_, &now), 0);
  EXPECT_EQ(now.c_lflag & (ICANON | ECHO), 0u);
  type("q");
  EXPECT_EQ(end(), 0);
}

TEST_F(LiveTop, CtrlCRestoresTheTerminal) {
  begin(100, 30);
  read_until("no process compiles");
  type("\x03");
  EXPECT_EQ(end(), 130);
}

TEST_F(LiveTop, SignalsRestoreTheTerminalAndEndIt) {
  for (const int signal : {SIGTERM, SIGHUP}) {
    begin(100, 30);
    read_until("no process compiles");
    ::kill(pid_, signal);
    EXPECT_EQ(end(), 128 + signal);
  }
}

TEST_F(LiveTop, CtrlZGivesTheTerminalBackUntilItGoesOn) {
  begin(100, 30);
  read_until("no process compiles");
  type("\x1a");
  read_until(kLeave);
  EXPECT_TRUE(WIFSTOPPED(next_status()));
  termios stopped{};
  ASSERT_EQ(::tcgetattr(terminal_, &stopped), 0);
  EXPECT_EQ(stopped.c_lflag, before_.c_lflag);
  ::kill(pid_, SIGCONT);
  read_until(kEnter);
  read_until("no process compiles");
  type("q");
  EXPECT_EQ(end(), 0);
}

TEST_F(LiveTop, FramesFitATerminalHoweverNarrowAndFollowItsSize) {
  const auto one = compiling(1), two = compiling(2), three = compiling(3);
  begin(20, 8, {{"NO_COLOR", "1"}});
  const auto expect_fits = [&](std::size_t columns, std::size_t rows) {
    read_until("\033[J"), read_until("\033[J");  // reads one whole frame
    const std::string frame = screen_.substr(screen_.find("\033[H"));
    const auto lines = visible_lines(frame);
    EXPECT_LE(lines.size(), rows) << frame;
    for (const std::string& line : lines) {
      std::size_t count = 0;
      for (const char c : line) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
      EXPECT_LE(count, columns) << line;
    }
    return frame;
  };
  expect_fits(20, 8);
  winsize size{};
  size.ws_row = 4, size.ws_col = 60;
  ASSERT_EQ(::ioctl(terminal_, TIOCSWINSZ, &size), 0);
  read_until("\033[J");
  expect_fits(60, 4);
  size.ws_row = 30;
  ASSERT_EQ(::ioctl(terminal_, TIOCSWINSZ, &size), 0);
  read_until("kernel 3");
  type("q");
  EXPECT_EQ(end(), 0);
}

TEST_F(LiveTop, OnceIsOneSnapshotOnATerminalToo) {
  const TerminalRun r = run_on_terminal(40, {"top", "--once"}, environment());
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.screen.find(kEnter), std::string::npos);
  EXPECT_NE(r.screen.find("no process compiles"), std::string::npos);
}

}  // namespace
}  // namespace kiln::test
