// What the command looks like on terminals, and how it ends when nobody reads it.
#include "terminal.hpp"

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

/// A warning comes from the log, which decides on colours for itself.
TEST_F(Terminal, AWarningHasColoursUnlessNoColorIsSetAndNotEmpty) {
  Environment with = environment();
  with["KILN_CACHEDIR"] = "x";  // no such variable: a warning
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
  ASSERT_EQ(lines.size(), 12u) << r.screen;  // the slowest ten under their header
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

TEST_F(Terminal, AClosedPipeEndsItQuietly) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const std::string errors = path("errors");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGPIPE, SIG_IGN);  // as some parents leave it
    ::dup2(ends[1], 1);
    if (!::freopen(errors.c_str(), "w", stderr)) ::_exit(126);
    ::execl(KILN_COMMAND, KILN_COMMAND, "templates", "--all", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(ends[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) << status;
  EXPECT_EQ(base::read_file(errors)->bytes, "");
}

}  // namespace
}  // namespace kiln::test
