// kiln prewarm, stopped in the middle: finished kernels stay, and the same command makes the rest.
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "support/nightly.hpp"
#include "support/places.hpp"
#include "support/time_limit.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class PrewarmStop : public KilnCompiler {
 protected:
  /// `slow` makes 2^DEPTH instantiations. DEPTH 11 takes long enough to be
  /// stopped in the middle; 30 takes for ever.
  PrewarmStop() {
    write("templates/slow.toml",
          "format = 1\n[template]\nname = \"slow\"\nsource = \"slow.cu\"\ninstantiate = \"slow<{N}, "
          "{DEPTH}>\"\n"
          "[param.N]\nkind = \"int\"\nrange = [1, 12]\n[param.DEPTH]\nkind = \"int\"\nrange = [1, "
          "30]\ndefault = 11\n"
          "[[arg]]\nname = \"x\"\ntype = \"ptr<i32>\"\naccess = \"write\"\nshape = [\"1\"]\n"
          "[launch]\ngrid = [\"1\"]\nblock = [\"1\"]\n");
    write("templates/slow.cu",
          "template <int N, int M> struct F {\n"
          "  static constexpr int v = F<N - 1, 2 * M>::v + F<N - 1, 2 * M + 1>::v;\n};\n"
          "template <int M> struct F<0, M> { static constexpr int v = M; };\n"
          "template <int N, int DEPTH> __global__ void slow(int* x) { *x = N + F<DEPTH, 1>::v; }\n");
    write("twelve.toml", "[[prewarm]]\ntemplate = \"slow\"\nN = { from = 1, to = 12, step = 1 }\n");
    write("endless.toml", "[[prewarm]]\ntemplate = \"slow\"\nDEPTH = 30\nN = [1, 2]\n");
  }
  std::string twelve() const { return path("twelve.toml"); }

  template <class Condition>
  static bool eventually(Condition&& condition) {
    for (const auto end = Clock::now() + 60s; Clock::now() < end;) {
      if (condition()) return true;
      std::this_thread::sleep_for(2ms);
    }
    return false;
  }
  static std::size_t compiled_lines(const std::string& out) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = out.find("] compiled", at)) != std::string::npos; ++at) ++count;
    return count;
  }
  std::size_t cached() { return kiln({"ls", "--json"}).json()["count"].get<std::size_t>(); }
  /// Expects that the same command makes the missing kernels, and no others.
  void expect_rest(std::size_t done) {
    const auto json = kiln({"prewarm", twelve(), "--json"}).json();
    EXPECT_EQ(json["from_disk"], done);
    EXPECT_EQ(json["compiled"], 12 - done);
    EXPECT_EQ(json["failed"], 0);
    EXPECT_EQ(cached(), 12u);
  }

  /// All living descendants of `pid`.
  static std::vector<int> descendants(int pid) {
    std::vector<int> out{pid};
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::error_code error;
      for (std::filesystem::directory_iterator it("/proc", error), end; !error && it != end;
           it.increment(error)) {
        const std::string name = it->path().filename().string();
        if (std::isdigit(static_cast<unsigned char>(name[0])) && parent_of(std::stoi(name)) == out[i])
          out.push_back(std::stoi(name));
      }
    }
    out.erase(out.begin());
    return out;
  }
  /// 0 when the process is gone, or waits only to be reaped.
  static int parent_of(int pid) {
    std::FILE* file = std::fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "re");
    if (!file) return 0;
    std::string text(1024, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    const auto name_end = text.rfind(')');
    if (name_end == std::string::npos || text.size() < name_end + 4 || text[name_end + 2] == 'Z') return 0;
    return std::stoi(text.substr(name_end + 4));
  }
  static bool all_gone(const std::vector<int>& pids) {
    return eventually([&] {
      for (const int pid : pids)
        if (parent_of(pid) != 0) return false;
      return true;
    });
  }
};

TEST_F(PrewarmStop, AnInterruptFinishesWhatRunsAndTheSameCommandMakesTheRest) {
  auto process = start({"prewarm", twelve(), "-j2"});
  ASSERT_TRUE(eventually([&] { return compiled_lines(process->out()) > 0; }));
  process->send(SIGINT);
  const Finished r = process->wait();
  EXPECT_EQ(r.status, 130) << r.err;
  const std::size_t done = compiled_lines(r.out);
  EXPECT_GE(done, 1u);
  ASSERT_LT(done, 12u) << r.out;
  EXPECT_EQ(cached(), done);
  EXPECT_NE(r.out.find(std::to_string(12 - done) + " not started"), std::string::npos) << r.out;
  EXPECT_EQ(r.out.find("failed"), std::string::npos) << r.out;
  EXPECT_NE(r.err.find("the same command makes the rest"), std::string::npos) << r.err;
  expect_rest(done);
}

TEST_F(PrewarmStop, ASecondInterruptLeavesAtOnceAndItsWorkersToo) {
  auto process = start({"prewarm", path("endless.toml"), "-j2"});
  std::vector<int> workers;
  ASSERT_TRUE(eventually([&] { return (workers = descendants(process->pid())).size() >= 2; }));
  process->send(SIGINT);
  std::this_thread::sleep_for(500ms);  // the command goes on: the compile takes for ever
  ASSERT_EQ(process->out(), "");
  ASSERT_NE(parent_of(process->pid()), 0);
  const auto start = Clock::now();
  process->send(SIGINT);
  EXPECT_EQ(process->wait().status, 130);
  EXPECT_LT(Clock::now() - start, at_most(30s));
  EXPECT_TRUE(all_gone(workers));
}

TEST_F(PrewarmStop, KilledItLosesOnlyWhatRanAndLeavesNoWorker) {
  for (const std::size_t after : {1u, 4u}) {
    auto process = start({"prewarm", twelve(), "-j2"});
    ASSERT_TRUE(eventually([&] {
      const std::string out = process->out();
      return std::count(out.begin(), out.end(), '\n') >= static_cast<std::ptrdiff_t>(after);
    }));
    const std::vector<int> workers = descendants(process->pid());
    EXPECT_FALSE(workers.empty());
    process->send(SIGKILL);
    EXPECT_EQ(process->wait().status, 128 + SIGKILL);
    EXPECT_TRUE(all_gone(workers));
  }
  const std::size_t done = cached();
  EXPECT_GE(done, 1u);
  ASSERT_LT(done, 12u);
  expect_rest(done);
}

/// A terminal sends Ctrl-C to the whole foreground group. The workers must not react to it.
TEST_F(PrewarmStop, ATerminalsCtrlCFailsNothing) {
  KILN_NIGHTLY_ONLY();
  std::vector<std::string> settings{"TERM=xterm"};
  for (const auto& [name, value] : environment()) settings.push_back(name + '=' + value);
  std::vector<char*> envp;
  for (const std::string& s : settings) envp.push_back(const_cast<char*>(s.c_str()));
  envp.push_back(nullptr);
  const std::string file = twelve();
  winsize size{};
  size.ws_row = 50, size.ws_col = 120;
  int terminal = -1;
  const pid_t pid = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (pid == 0) {
    ::execle(places::kCommand, places::kCommand, "prewarm", file.c_str(), "-j2", static_cast<char*>(nullptr),
             envp.data());
    ::_exit(127);
  }
  std::string screen;
  bool typed = false;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(terminal, buffer, sizeof buffer)) > 0;) {
    screen.append(buffer, static_cast<std::size_t>(got));
    if (!typed && screen.find("[=") != std::string::npos) {
      typed = true;
      EXPECT_EQ(::write(terminal, "\003", 1), 1);
    }
  }
  ::close(terminal);
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(typed) << screen;
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 130) << screen;
  EXPECT_NE(screen.find("finishing what is running"), std::string::npos) << screen;
  EXPECT_EQ(screen.find("failed"), std::string::npos) << screen;
  const std::size_t done = cached();
  ASSERT_LT(done, 12u);
  expect_rest(done);
}

}  // namespace
}  // namespace kiln::test
