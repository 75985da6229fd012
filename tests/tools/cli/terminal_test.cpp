// The command's output on terminals, and its end when its output has no reader.
#include "tools/terminal.hpp"
#include "support/places.hpp"

#include <sys/wait.h>
#include <unistd.h>

namespace kiln::test {
namespace {

std::size_t columns_of(const std::string& line) {
  std::size_t count = 0;
  for (const char c : line) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

class OnTerminal : public KilnCommand, public ::testing::WithParamInterface<int> {
 protected:
  void expect_fits(const TerminalRun& r) {
    for (const std::string& line : visible_lines(r.screen))
      EXPECT_LE(columns_of(line), static_cast<std::size_t>(GetParam())) << line;
  }
};

TEST_P(OnTerminal, LinesFit) {
  for (const Arguments& arguments : {Arguments{"templates"},
                                     {"templates", "rms_norm"},
                                     {"templates", "scale"},
                                     {"ls"},
                                     {"stats"},
                                     {"gc"},
                                     {"doctor"}}) {
    const TerminalRun r = run_on_terminal(GetParam(), arguments, environment());
    EXPECT_LE(r.status, 1) << r.screen;
    expect_fits(r);
  }
}
INSTANTIATE_TEST_SUITE_P(Columns, OnTerminal, ::testing::Values(80, 100, 200));

using Terminal = KilnCommand;

TEST_F(Terminal, ColoursAreOffUnderNoColor) {
  EXPECT_NE(run_on_terminal(80, {"templates"}, environment()).screen.find("\033[1m"), std::string::npos);
  Environment plain = environment();
  plain["NO_COLOR"] = "1";
  EXPECT_EQ(run_on_terminal(80, {"templates"}, plain).screen.find('\033'), std::string::npos);
}

/// Warnings come from the log, which decides on colours by itself.
TEST_F(Terminal, AWarningHasColoursUnlessNoColorIsSetAndNotEmpty) {
  Environment with = environment();
  with["KILN_CACHEDIR"] = "x";  // there is no such variable, so this makes a warning
  const auto screen = [&with](const char* no_color) {
    if (no_color) with["NO_COLOR"] = no_color;
    return run_on_terminal(80, {"ls"}, with).screen;
  };
  const std::string warning = "kiln: \033[33m\033[1mwarning\033[m: ", plain = "kiln: warning: ";
  EXPECT_EQ(screen(nullptr).rfind(warning, 0), 0u) << screen(nullptr);
  EXPECT_EQ(screen("").rfind(warning, 0), 0u) << "an empty NO_COLOR is as none";
  EXPECT_EQ(screen("1").rfind(plain, 0), 0u) << screen("1");
  EXPECT_EQ(screen("1").find('\033'), std::string::npos);
}

class TerminalCompiler : public KilnCompiler {};

TEST_F(TerminalCompiler, PrewarmShowsABarAndLeavesOnlyTheSummary) {
  write("plan.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]\n");
  const TerminalRun r = run_on_terminal(80, {"prewarm", path("plan.toml"), "-j1"}, environment());
  EXPECT_EQ(r.status, 0);
  EXPECT_NE(r.screen.find("/12"), std::string::npos);
  const auto lines = visible_lines(r.screen);
  ASSERT_EQ(lines.size(), 12u) << r.screen;  // a header and the slowest ten, and a summary
  EXPECT_EQ(lines[0].rfind("SLOWEST", 0), 0u) << lines[0];
  EXPECT_EQ(lines[11].rfind("12 of 12 specialisations: ", 0), 0u) << lines[11];
}

TEST_F(TerminalCompiler, FailuresStayOnTheScreenOnce) {
  write("plan.toml", "[[prewarm]]\ntemplate = \"picky\"\nN = [1, 2, 3]\n");
  const TerminalRun r = run_on_terminal(200, {"prewarm", path("plan.toml"), "--keep-going"}, environment());
  EXPECT_EQ(r.status, 3);
  int count = 0;
  for (const std::string& line : visible_lines(r.screen))
    count += line.find("two is refused") != std::string::npos;
  EXPECT_EQ(count, 1) << r.screen;
}

TEST_F(TerminalCompiler, ACubinIsNotWrittenToATerminal) {
  const TerminalRun r = run_on_terminal(80, {"compile", "scale", "N=1", "-o", "-"}, environment());
  EXPECT_EQ(r.status, 2);
  EXPECT_EQ(r.screen.find("ELF"), std::string::npos);
}

/// Runs the command under `environment` with an stdout that has no reader. stderr
/// goes to `errors`. Returns the wait status.
int without_a_reader(const Arguments& arguments, const Environment& environment, const std::string& errors) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  ::close(ends[0]);
  std::vector<std::string> settings;
  for (const auto& [name, value] : environment) settings.push_back(name + '=' + value);
  std::vector<char*> argv{const_cast<char*>(places::kCommand)}, envp;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  for (const std::string& s : settings) envp.push_back(const_cast<char*>(s.c_str()));
  argv.push_back(nullptr), envp.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGPIPE, SIG_IGN);  // some parents leave it ignored
    ::dup2(ends[1], 1);
    if (!::freopen(errors.c_str(), "w", stderr)) ::_exit(126);
    ::execve(places::kCommand, argv.data(), envp.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  int status = -1;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return status;
}

TEST_F(Terminal, AClosedPipeEndsItQuietly) {
  const int status = without_a_reader({"templates", "--all"}, environment(), path("errors"));
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) << status;
  EXPECT_EQ(base::read_file(path("errors"))->bytes, "");
}

TEST_F(TerminalCompiler, APrewarmThatAClosedPipeEndsCountsWhatItMade) {
  write("plan.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = [1, 2, 3]\n");
  const int status = without_a_reader({"prewarm", path("plan.toml"), "-j1"}, environment(), path("errors"));
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) << status;
  const auto stats = kiln({"stats", "--json"}).json();
  EXPECT_EQ(stats["lifetime"]["compiles"], 1) << "it stops with the first line that nobody reads";
  EXPECT_EQ(kiln({"ls", "--json"}).json()["count"], 1);
  EXPECT_EQ(base::read_file(path("errors"))->bytes, "kiln: interrupted; the same command makes the rest\n");
}

TEST_F(TerminalCompiler, ACompileWhoseResultNobodyReadsIsCounted) {
  const int status = without_a_reader({"compile", "scale", "N=1"}, environment(), path("errors"));
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) << status;
  EXPECT_EQ(kiln({"stats", "--json"}).json()["lifetime"]["compiles"], 1);
  EXPECT_EQ(base::read_file(path("errors"))->bytes, "");
}

}  // namespace
}  // namespace kiln::test
