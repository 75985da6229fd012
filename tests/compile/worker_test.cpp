// Compile workers with the real NVRTC: warm reuse, deadlines, deaths.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <fstream>
#include <thread>

#include "compile/backend/nvrtc/program.hpp"
#include "compile/pool/pool.hpp"
#include "compile/worker_fixture.hpp"
#include "kiln/error.hpp"
#include "support/child.hpp"
#include "support/time_limit.hpp"

namespace kiln::testing {
namespace {

using compile::WorkerPool;
using compile::WorkerProcess;
using compile::WorkerRequest;
using compile::WorkerResponse;
using Fate = WorkerProcess::Answer::Fate;
using std::chrono::seconds;

TEST(Worker, CompilesAndStaysWarm) {
  KILN_REAL_TOOLKIT(toolkit);
  auto worker = WorkerProcess::spawn({.executable = kWorker});
  for (int i = 0; i < 3; ++i) {
    const auto answer = worker->ask(request(toolkit), base::Deadline::after(seconds(60)));
    ASSERT_EQ(answer.fate, Fate::answered) << answer.how;
    ASSERT_EQ(answer.response.status, WorkerResponse::Status::ok)
        << answer.response.message << answer.response.log;
    EXPECT_EQ(answer.response.lowered_names.at(0), "_Z1kILi4EEvPi");
    EXPECT_EQ(answer.response.image.substr(1, 3), "ELF");
    EXPECT_GT(answer.response.frontend_ms + answer.response.nvvm_ms + answer.response.ptxas_ms, 0);
  }
  const pid_t pid = worker->pid();
  worker.reset();
  EXPECT_TRUE(gone(pid, 1)) << "destruction reaps";
}

TEST(Worker, IsKilledAtTheDeadlineAndThePoolGoesOn) {
  KILN_REAL_TOOLKIT(toolkit);
  WorkerPool pool({.executable = kWorker, .jobs = 1});
  ASSERT_EQ(pool.run(request(toolkit), {.compile_limit = seconds(60)}).fate,
            Fate::answered);  // so that the next run only compiles
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(pool.run(request(toolkit, kEndless), {.compile_limit = seconds(1)}).fate, Fate::timed_out);
  EXPECT_LT(std::chrono::steady_clock::now() - start, at_most(seconds(6)))
      << "not after the minutes that it compiles";
  EXPECT_EQ(pool.run(request(toolkit), {.compile_limit = seconds(60)}).response.status,
            WorkerResponse::Status::ok);
}

TEST(Worker, KilledInMidCompileSaysSoAndThePoolGoesOn) {
  KILN_REAL_TOOLKIT(toolkit);
  auto worker = WorkerProcess::spawn({.executable = kWorker});
  std::thread killer([pid = worker->pid()] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    ::kill(pid, SIGKILL);
  });
  const auto answer = worker->ask(request(toolkit, kEndless), base::Deadline::after(seconds(60)));
  killer.join();
  EXPECT_EQ(answer.fate, Fate::died);
  EXPECT_NE(answer.how.find("signal 9"), std::string::npos) << answer.how;
}

TEST(Worker, KilledWhileIdleIsReplacedWithoutAnError) {
  KILN_REAL_TOOLKIT(toolkit);
  WorkerPool pool({.executable = kWorker, .jobs = 1});
  ASSERT_EQ(pool.run(request(toolkit), {.compile_limit = seconds(60)}).fate, Fate::answered);
  std::string children;
  std::ifstream("/proc/self/task/" + std::to_string(::getpid()) + "/children") >> children;
  ASSERT_FALSE(children.empty());
  ::kill(std::stoi(children), SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(pool.run(request(toolkit), {.compile_limit = seconds(60)}).response.status,
            WorkerResponse::Status::ok);
}

TEST(Worker, LeavesWithItsHostEvenWhenAForkedChildHoldsTheSocket) {
  KILN_REAL_TOOLKIT(toolkit);
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const pid_t host = ::fork();
  if (host == 0) {
    auto worker = WorkerProcess::spawn({.executable = kWorker});
    const auto answer = worker->ask(request(toolkit), base::Deadline::after(seconds(60)));
    pid_t report[2] = {answer.fate == Fate::answered ? worker->pid() : -1, 0};
    report[1] = ::fork();
    if (report[1] == 0) {
      ::prctl(PR_SET_PDEATHSIG, 0);
      ::sleep(20);
      ::_exit(0);
    }
    [[maybe_unused]] const ssize_t n = ::write(pipe_fds[1], report, sizeof report);
    ::_exit(0);  // no destructor runs
  }
  pid_t report[2] = {-1, -1};
  ASSERT_EQ(::read(pipe_fds[0], report, sizeof report), static_cast<ssize_t>(sizeof report));
  ::waitpid(host, nullptr, 0);
  ASSERT_GT(report[0], 0);
  EXPECT_TRUE(gone(report[0], 30)) << "the worker outlived its host";
  EXPECT_EQ(::kill(report[1], 0), 0) << "the forked child is to live on in this test";
  ::kill(report[1], SIGKILL);
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
}

TEST(Worker, ThatAnswersGarbageIsRefused) {
  const Tree tree;
  const std::string script =
      tree.write("worker", "#!/bin/sh\nprintf 'garbage garbage garbage garbage' >&3\nsleep 5\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  auto worker = WorkerProcess::spawn({.executable = script});
  const auto answer = worker->ask(request({}), base::Deadline::after(seconds(10)));
  EXPECT_EQ(answer.fate, Fate::died);
  EXPECT_NE(answer.how.find("malformed"), std::string::npos) << answer.how;
}

TEST(Worker, ThatCannotBeStartedNamesTheExecutable) {
  try {
    WorkerProcess::spawn({.executable = "/nonexistent/kiln-worker"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::no_compiler);
    EXPECT_NE(std::string(error.what()).find("/nonexistent/kiln-worker"), std::string::npos);
  }
}

TEST(Worker, LeavesNoDescriptorBehindInTheHost) {
  const auto open_descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto before = open_descriptors();
  for (int i = 0; i < 5; ++i) WorkerProcess::spawn({.executable = kWorker});
  EXPECT_EQ(open_descriptors(), before);
}

TEST(InProcessCompile, LeavesTheHostsWorkingDirectoryAlone) {
  KILN_REAL_TOOLKIT(toolkit);
  const auto before = std::filesystem::current_path();
  const WorkerResponse response = compile::run_nvrtc(request(toolkit), compile::WorkingDirectory::of_thread);
  EXPECT_EQ(response.status, WorkerResponse::Status::ok) << response.message;
  EXPECT_EQ(std::filesystem::current_path(), before);
}

TEST(InProcessCompile, SurvivesDeepNesting) {
  KILN_REAL_TOOLKIT(toolkit);
  const std::string deep =
      "__global__ void f(int* o) { *o = " + std::string(10000, '(') + "1" + std::string(10000, ')') + "; }\n";
  const WorkerResponse response =
      compile::run_nvrtc(request(toolkit, deep + "template <int N> __global__ void k(int* o) { *o = N; }"),
                         compile::WorkingDirectory::of_thread);
  EXPECT_EQ(response.status, WorkerResponse::Status::ok) << response.message << response.log;
}

TEST(InProcessCompile, AChildForkedMeanwhileIsToldSoAndDoesNotHang) {
  if (cannot_fork_busy()) GTEST_SKIP() << cannot_fork_busy();
  KILN_REAL_TOOLKIT(toolkit);

  const auto compile_here = [&] {
    return compile::run_nvrtc(request(toolkit), compile::WorkingDirectory::of_thread);
  };
  ASSERT_EQ(compile_here().status, WorkerResponse::Status::ok);
  EXPECT_EQ(in_child([&] { return compile_here().status == WorkerResponse::Status::ok ? 0 : 1; }), 0)
      << "nobody compiles";
  std::atomic<bool> stop{false};
  std::atomic<int> failures{0};
  std::thread compiles([&] {
    while (!stop) failures += compile_here().status != WorkerResponse::Status::ok;
  });
  int told = 0;
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const int child = in_child([&] {
      const WorkerResponse response = compile_here();
      if (response.status == WorkerResponse::Status::ok) return 0;
      return response.status == WorkerResponse::Status::no_compiler &&
                     response.message.find("forked") != std::string::npos
                 ? 1
                 : 2;
    });
    ASSERT_LE(child, 1);
    told += child;
  }
  stop = true;
  compiles.join();
  EXPECT_EQ(failures, 0) << "the parent is unharmed";
  EXPECT_GE(told, 1);
}

TEST(Worker, SaysWhichArchsTheCompilerKnows) {
  KILN_REAL_TOOLKIT(toolkit);
  WorkerRequest r = request(toolkit);
  r.arch = "sm_61";
  const WorkerResponse response = compile::run_nvrtc(r, compile::WorkingDirectory::of_thread);
  EXPECT_EQ(response.status, WorkerResponse::Status::unsupported_arch);
  EXPECT_NE(response.message.find("sm_61"), std::string::npos);
  EXPECT_NE(response.message.find("sm_90a"), std::string::npos) << response.message;
}

}  // namespace
}  // namespace kiln::testing
