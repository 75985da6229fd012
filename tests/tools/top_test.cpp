// kiln top: what it says of real processes, and what it does to a terminal.
#include <pty.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <termios.h>

#include <filesystem>
#include <set>

#include "cache/flight.hpp"
#include "cache/slots.hpp"
#include "store_command.hpp"
#include "terminal.hpp"
#include "tests/support/other_user.hpp"

namespace kiln::test {
namespace {

using cache::FlightFile;
using cache::test::key_of;

class Top : public StoreCommand {
 protected:
  void SetUp() override { fill(1); }
  /// As each process of this store has it.
  std::shared_ptr<FlightFile> flights() const {
    const auto store = open();
    return FlightFile::open({store->identity(), store->directory() + "/v1"});
  }
  nlohmann::json look() {
    const Finished r = kiln({"top", "--json"});
    EXPECT_EQ(r.status, 0) << r.err;
    return r.json();
  }
  /// The rows of this state once there are so many.
  std::vector<nlohmann::json> rows(const std::string& state, std::size_t count) {
    std::vector<nlohmann::json> out;
    base::poll_until(cache::test::soon(), [&] {
      out.clear();
      const nlohmann::json seen = look();
      for (const auto& row : seen["processes"])
        if (row["state"] == state) out.push_back(row);
      return out.size() == count;
    });
    EXPECT_EQ(out.size(), count) << state;
    out.resize(count);
    return out;
  }
  /// A process that does `body` and then stays until it is killed.
  class Child {
   public:
    explicit Child(const std::function<void(const std::function<void()>& stay)>& body) {
      int ready[2];
      EXPECT_EQ(::pipe(ready), 0);
      pid = ::fork();
      if (pid == 0) {
        body([&] {
          [[maybe_unused]] const auto n = ::write(ready[1], "x", 1);
          for (;;) ::pause();
        });
        ::_exit(0);
      }
      ::close(ready[1]);
      char byte = 0;
      EXPECT_EQ(::read(ready[0], &byte, 1), 1);
      ::close(ready[0]);
    }
    ~Child() { end(); }
    void end() {
      if (pid > 0) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
      pid = -1;
    }
    pid_t pid = -1;
  };
  std::unique_ptr<Child> compiling(std::uint32_t number) const {
    return std::make_unique<Child>([this, number](const auto& stay) {
      const auto taken = flights()->take(key_of(number), base::Deadline::never());
      taken.flight->compiling("kernel " + std::to_string(number));
      stay();
    });
  }
};

TEST_F(Top, ACacheThatIsNotThereHasNobodyAndIsNotMade) {
  const Finished r = kiln({"top"}, {{"KILN_CACHE_DIR", path("nowhere")}});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("nobody compiles, waits or holds"), std::string::npos) << r.out;
  EXPECT_FALSE(exists(path("nowhere")));
  const auto json = look();
  EXPECT_EQ(json["schema"], "kiln.top/1");
  EXPECT_EQ(json["directory"], cache());
  EXPECT_TRUE(json["processes"].empty() && json["finished"].empty() && json["unseen"].empty());
  EXPECT_EQ(json["slots"]["used"], 0);
}

TEST_F(Top, ACompileIsShownWithItsProcess) {
  const auto holder = compiling(1);
  const auto row = rows("compiling", 1)[0];
  EXPECT_EQ(row["pid"], holder->pid);
  EXPECT_EQ(row["subject"], "kernel 1");
  EXPECT_EQ(row["key"], key_of(1).hex());
  EXPECT_EQ(row["same_namespace"], true);
  EXPECT_LT(row["seconds"], 60);
  const std::string text = kiln({"top"}).out;
  EXPECT_NE(text.find("1 compiling\n"), std::string::npos) << text;
  EXPECT_NE(text.find(std::to_string(holder->pid) + " ("), std::string::npos) << text;
  EXPECT_EQ(text.find('\033'), std::string::npos);
}

TEST_F(Top, AWaiterOfAnotherProcessIsShownUntilItHasIt) {
  auto holder = compiling(1);
  const pid_t waiter = ::fork();
  if (waiter == 0) {
    const auto taken = flights()->take(key_of(1), base::Deadline::never(), nullptr, {}, "kernel 1");
    taken.flight->compiling("kernel 1");
    for (;;) ::pause();
  }
  const auto row = rows("waiting", 1)[0];
  EXPECT_EQ(row["pid"], waiter);
  EXPECT_EQ(row["subject"], "kernel 1");
  EXPECT_GE(row["seconds"], 0.02);
  holder->end();
  EXPECT_EQ(rows("compiling", 1)[0]["pid"], waiter);
  rows("waiting", 0);
  ::kill(waiter, SIGKILL), ::waitpid(waiter, nullptr, 0);
}

TEST_F(Top, AKilledHolderIsLeftBehindAndAStoppedOneIsStopped) {
  const auto killed = compiling(1), stopped = compiling(2);
  const pid_t pid = killed->pid;
  ::kill(stopped->pid, SIGSTOP);
  EXPECT_EQ(rows("stopped", 1)[0]["pid"], stopped->pid);
  killed->end();
  EXPECT_EQ(rows("left_behind", 1)[0]["pid"], pid);
  rows("compiling", 0);
  EXPECT_NE(kiln({"top"}).out.find("left behind"), std::string::npos);
}

TEST_F(Top, OneWhoseTurnHasNotComeIsQueuedAndNotCompiling) {
  Child child([this](const auto& stay) {
    const auto file = flights();
    const auto one = file->take(key_of(1), base::Deadline::never()),
               two = file->take(key_of(2), base::Deadline::never());
    one.flight->compiling("kernel 1"), two.flight->compiling("kernel 2");
    const auto shown = file->show_waiting(cache::WaitFor::turn, "kernel 2");
    const auto without_a_flight = file->show_waiting(cache::WaitFor::turn, "kernel 3");
    stay();
  });
  EXPECT_EQ(rows("compiling", 1)[0]["subject"], "kernel 1");
  const auto queued = rows("queued", 2);
  EXPECT_EQ(std::set<std::string>({queued[0]["subject"], queued[1]["subject"]}),
            (std::set<std::string>{"kernel 2", "kernel 3"}));
}

TEST_F(Top, SlotsInUseAreCounted) {
  const auto file = flights();
  const auto one = cache::SlotAsker(file, cache::SlotUse::caller, 1).try_take();
  const auto two = cache::SlotAsker(file, cache::SlotUse::caller, 1).try_take();
  cache::SlotAsker third(flights(), cache::SlotUse::caller, 1);
  EXPECT_FALSE(third.try_take());
  const Finished r = kiln({"top", "--json"}, {{"KILN_JOBS", "999"}});
  EXPECT_EQ(r.json()["slots"]["used"], 2);
  EXPECT_EQ(r.json()["slots"]["regular"], 999);
  EXPECT_EQ(r.json()["slots"]["caller_waits"], true);
  EXPECT_NE(kiln({"top"}).out.find("a caller waits for one"), std::string::npos);
}

TEST_F(Top, HoldersWhoSayNothingAreNamed) {
  const auto taken = flights()->take(key_of(1), base::Deadline::never());
  HeldGate gate(data_file());
  const std::string self = "pid " + std::to_string(::getpid()) + " (";
  const auto holding = rows("holding", 1)[0], writing = rows("writing", 1)[0];
  EXPECT_EQ(holding["process"].get<std::string>().substr(0, self.size()), self);
  EXPECT_EQ(writing["process"].get<std::string>().substr(0, self.size()), self);
  EXPECT_NE(writing["subject"].get<std::string>().find(data_file()), std::string::npos);
  EXPECT_TRUE(holding["seconds"].is_null());
}

TEST_F(Top, WhatEndedSaysHow) {
  const auto file = flights();
  for (std::uint32_t number = 1; number <= 3; ++number) {
    const auto taken = file->take(key_of(number), base::Deadline::never());
    taken.flight->compiling("kernel " + std::to_string(number));
    if (number == 1) taken.flight->published();
    if (number == 2) taken.flight->failed("log");
  }
  const auto json = look();
  std::map<std::string, std::string> ends;
  for (const auto& flight : json["finished"]) ends[flight["subject"]] = flight["end"];
  EXPECT_EQ(ends, (std::map<std::string, std::string>{
                      {"kernel 1", "published"}, {"kernel 2", "failed"}, {"kernel 3", "unpublished"}}));
  EXPECT_EQ(json["compiles_per_minute"], 3);
}

TEST_F(Top, AProcessOfAnotherPidNamespaceIsNamedWithItsHost) {
  KILN_NEEDS_ROOT();
  Child child([this](const auto& stay) {
    if (::unshare(CLONE_NEWPID) != 0) return stay();
    if (::fork() != 0) ::pause();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto taken = flights()->take(key_of(1), base::Deadline::never());
    taken.flight->compiling("kernel 1");
    stay();
  });
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
  const auto row = rows("compiling", 1)[0];
  EXPECT_EQ(row["pid"], 1);
  EXPECT_EQ(row["same_namespace"], false);
  EXPECT_EQ(row["process"], host + std::string("/1(ns)"));
}

TEST_F(Top, AnotherUserIsToldWhatHeCannotSee) {
  KILN_NEEDS_ROOT();
  const auto holder = compiling(1);
  std::filesystem::copy_file(KILN_COMMAND, path("kiln"));  // the build may lie where only root gets
  for (const std::string& directory : {path(""), cache(), cache() + "/v1"}) ::chmod(directory.c_str(), 0755);
  ::chmod(data_file().c_str(), 0644);
  const std::string out = kiln::testing::as_user(kiln::testing::kUser, [&] {
    std::string text;
    std::FILE* shell = ::popen(
        ("cd / && env -i KILN_CACHE_DIR=" + cache() + ' ' + path("kiln") + " top; echo status $?").c_str(),
        "r");
    for (int c; shell && (c = std::fgetc(shell)) != EOF;) text += static_cast<char>(c);
    if (shell) ::pclose(shell);
    return text;
  });
  EXPECT_NE(out.find("not seen: /dev/shm/kiln-0-"), std::string::npos) << out;
  EXPECT_NE(out.find("Permission denied"), std::string::npos) << out;
  EXPECT_NE(out.find("status 0"), std::string::npos) << out;
}

TEST_F(Top, AnIntervalIsForATerminal) {
  EXPECT_EQ(kiln({"top", "--interval", "1"}).status, 2);
  EXPECT_EQ(kiln({"top", "--interval", "1", "--json"}).status, 2);
  EXPECT_EQ(kiln({"top", "--interval", "0"}).status, 2);
}

TEST_F(Top, AClosedPipeEndsItQuietly) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const std::string errors = path("errors");
  const Environment settings = environment();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGPIPE, SIG_IGN);  // as some parents leave it
    ::dup2(ends[1], 1);
    ::setenv("KILN_CACHE_DIR", cache().c_str(), 1);
    if (!::freopen(errors.c_str(), "w", stderr)) ::_exit(126);
    ::execl(KILN_COMMAND, KILN_COMMAND, "top", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(ends[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) << status;
  EXPECT_EQ(base::read_file(errors)->bytes, "");
}

/// kiln top on a terminal that this test types on, resizes and looks at.
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
    char* const argv[] = {const_cast<char*>(KILN_COMMAND), const_cast<char*>("top"),
                          const_cast<char*>("--interval"), const_cast<char*>("0.1"), nullptr};
    winsize size{};
    size.ws_row = rows, size.ws_col = columns;
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (pid_ == 0) {
      ::execve(KILN_COMMAND, argv, envp.data());
      ::_exit(127);
    }
    ASSERT_EQ(::tcgetattr(terminal_, &before_), 0);
    read_until(kEnter);
  }
  /// Clears what was read before.
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
  /// Its status as a shell has it; the terminal is as it was.
  int end() {
    char buffer[4096];
    for (ssize_t got; (got = ::read(terminal_, buffer, sizeof buffer)) > 0;)
      screen_.append(buffer, static_cast<std::size_t>(got));
    int status = 0;
    ::waitpid(pid_, &status, 0);
    termios after{};
    EXPECT_EQ(::tcgetattr(terminal_, &after), 0);
    EXPECT_EQ(after.c_lflag, before_.c_lflag);
    EXPECT_EQ(after.c_lflag & (ICANON | ECHO), static_cast<tcflag_t>(ICANON | ECHO));
    const std::size_t left = screen_.rfind(kLeave);
    EXPECT_NE(left, std::string::npos) << screen_;
    EXPECT_EQ(screen_.find(kEnter, left), std::string::npos);
    EXPECT_NE(screen_.find("\033[?25h"), std::string::npos) << "no cursor";
    ::close(terminal_);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  int terminal_ = -1;
  pid_t pid_ = -1;
  termios before_{};
  std::string screen_;
};

TEST_F(LiveTop, IsRedrawnAndEndsWithQ) {
  begin(100, 30);
  read_until("nobody compiles");
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
  read_until("nobody compiles");
  type("\x03");
  EXPECT_EQ(end(), 130);
}

TEST_F(LiveTop, SignalsRestoreTheTerminalAndEndIt) {
  for (const int signal : {SIGTERM, SIGHUP}) {
    begin(100, 30);
    read_until("nobody compiles");
    ::kill(pid_, signal);
    EXPECT_EQ(end(), 128 + signal);
  }
}

TEST_F(LiveTop, CtrlZGivesTheTerminalBackUntilItGoesOn) {
  begin(100, 30);
  read_until("nobody compiles");
  type("\x1a");
  read_until(kLeave);
  int status = 0;
  ASSERT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
  EXPECT_TRUE(WIFSTOPPED(status));
  termios stopped{};
  ASSERT_EQ(::tcgetattr(terminal_, &stopped), 0);
  EXPECT_EQ(stopped.c_lflag, before_.c_lflag);
  ::kill(pid_, SIGCONT);
  read_until(kEnter);
  read_until("nobody compiles");
  type("q");
  EXPECT_EQ(end(), 0);
}

TEST_F(LiveTop, FramesFitATerminalHoweverNarrowAndFollowItsSize) {
  const auto one = compiling(1), two = compiling(2), three = compiling(3);
  begin(20, 8, {{"NO_COLOR", "1"}});
  const auto expect_fits = [&](std::size_t columns, std::size_t rows) {
    read_until("\033[J"), read_until("\033[J");  // one whole frame
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
  EXPECT_NE(r.screen.find("nobody compiles"), std::string::npos);
}

class TopCompiles : public KilnCompiler {};

TEST_F(TopCompiles, ARealCompileAndItsWaiterInAnotherProcess) {
  write("worker", "#!/bin/sh\nexec sleep 20\n");  // one that never answers
  ::chmod(path("worker").c_str(), 0700);
  const Environment slow{{"KILN_WORKER", path("worker")}};
  const Arguments ask{"compile", "scale", "N=1", "--arch", "sm_90a"};
  const auto first = start(ask, slow), second = start(ask, slow);
  std::map<std::string, nlohmann::json> rows;
  const auto look = [&] {
    rows.clear();
    const Finished seen = kiln({"top", "--json"});
    const nlohmann::json json = seen.json();
    for (const auto& row : json["processes"]) rows[row["state"]] = row;
    return rows.contains("compiling") && rows.contains("waiting");
  };
  EXPECT_TRUE(base::poll_until(base::Deadline::after(std::chrono::seconds(60)), look));
  EXPECT_EQ(rows["compiling"]["subject"], "scale N=1 FLAG=false for sm_90a");
  EXPECT_EQ(rows["waiting"]["subject"], rows["compiling"]["subject"]);
  EXPECT_EQ(rows["waiting"]["key"], rows["compiling"]["key"]);
  EXPECT_EQ(std::set<int>({rows["compiling"]["pid"], rows["waiting"]["pid"]}),
            (std::set<int>{first->pid(), second->pid()}));
  EXPECT_EQ(kiln({"top", "--json"}).json()["slots"]["used"], 1);
  first->send(SIGKILL), second->send(SIGKILL);
}

}  // namespace
}  // namespace kiln::test
