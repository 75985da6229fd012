// The path without a GPU: memory, disk, flight, compile, publish. Tests check which caller compiles,
// and each caller's outcome.
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <thread>

#include "instantiate/plan.hpp"
#include "kiln/error.hpp"
#include "runtime/service_fixture.hpp"
#include "support/nightly.hpp"

namespace kiln::testing {
namespace {

using runtime::Service;

class PathTest : public ServiceTest {};

TEST_F(PathTest, CompiledThenMemoryThenDiskWithOneKeyForEveryArch) {
  for (const char* arch : {"sm_80", "sm_90a", "sm_100a", "sm_120"}) {
    Key key;
    {
      Service first(options());
      const auto compiled = compile(first, "scale", {Dtype::f32, 7}, arch);
      EXPECT_EQ(compiled.outcome, Outcome::compiled) << arch;
      const auto again = compile(first, "scale", {Dtype::f32, 7}, arch);
      EXPECT_EQ(again.outcome, Outcome::memory);
      EXPECT_EQ(again.image->key, compiled.image->key);
      key = compiled.image->key;
    }
    Service second(options());
    const auto from_disk = compile(second, "scale", {Dtype::f32, 7}, arch);
    EXPECT_EQ(from_disk.outcome, Outcome::disk);
    EXPECT_EQ(from_disk.image->key, key);
    kiln_stats stats{};
    read(second.core().state().counters, stats);
    EXPECT_EQ(stats.disk_hits, 1u);
    EXPECT_EQ(stats.compiles, 0u);
  }
}

TEST_F(PathTest, ImagesAreTheSameFromDiskAndFromTheCompiler) {
  Service first(options());
  const std::string compiled = compile(first, "scale", {Dtype::f32, 7}).image->bytes;
  Service second(options());
  EXPECT_EQ(compile(second, "scale", {Dtype::f32, 7}).image->bytes, compiled);
}

TEST_F(PathTest, SixtyFourThreadsAskingForOneColdKeyCompileOnce) {
  Service service(options());
  std::barrier start(64);
  std::vector<std::string> images(64);
  std::vector<Outcome> outcomes(64);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 64; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      const auto got = compile(service, "scale", {Dtype::f32, 9});
      images[i] = got.image->bytes;
      outcomes[i] = got.outcome;
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(service.core().state().counters.compiles, 1u);
  EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), Outcome::compiled), 1);
  for (const auto& image : images) EXPECT_EQ(image, images[0]);
}

TEST_F(PathTest, ProcessesAskingForOneColdKeyCompileOnce) {
  // Every child has its own service. Its exit status says whether the child compiled.
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      int status = 0;
      try {
        Service service(options());
        status = compile(service, "scale", {Dtype::f32, 11}).outcome == Outcome::compiled ? 1 : 0;
      } catch (...) {
        status = 99;
      }
      ::_exit(status);
    }
    children.push_back(pid);
  }
  int compiled = 0;
  for (const pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_NE(WEXITSTATUS(status), 99);
    compiled += WEXITSTATUS(status);
  }
  EXPECT_EQ(compiled, 1);
}

TEST_F(PathTest, ARefusedSourceIsRememberedUntilItIsEdited) {
  tree_.write("t/scale.cu", small_source("", "out[i] = oops;"));
  Service service(options());
  std::string first, second;
  for (std::string* text : {&first, &second}) {
    try {
      compile(service, "scale", {Dtype::f32, 7});
      FAIL();
    } catch (const CompileError& error) {
      *text = error.what();
    }
  }
  EXPECT_EQ(first, second);
  EXPECT_NE(first.find("scale T=f32 N=7"), std::string::npos) << first;
  EXPECT_NE(first.find("oops"), std::string::npos);
  EXPECT_EQ(service.core().state().counters.compile_failures, 1u) << "the second ask costs no compile";
  EXPECT_EQ(service.core().state().counters.remembered_failures, 1u);

  tree_.write("t/scale.cu", small_source("", "out[i] = T(N);"));
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 7}).outcome, Outcome::compiled);
}

TEST_F(PathTest, AFailedCompileGivesEveryWaiterTheLogAndPublishesNothing) {
  tree_.write("t/scale.cu", small_source("", "out[i] = oops;"));
  Service service(options());
  std::barrier start(8);
  std::atomic<int> with_log{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      try {
        compile(service, "scale", {Dtype::f32, 7});
      } catch (const CompileError& error) {
        if (error.log().find("oops") != std::string::npos) ++with_log;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(with_log, 8);
  EXPECT_EQ(service.core().state().counters.compile_failures, 1u);
  EXPECT_EQ(service.core().state().stores.writable()->stats().entries, 0u);
}

TEST_F(PathTest, ATemplateFromMemoryTakesTheSamePath) {
  Options o = options();
  o.template_path.clear();
  std::string manifest = small_manifest("in_memory");
  for (const Outcome expected : {Outcome::compiled, Outcome::disk}) {
    Service service(o);
    service.add({manifest, small_source(), ""});
    EXPECT_EQ(compile(service, "in_memory", {Dtype::f32, 7}).outcome, expected);
  }
}

/// Expects that a miss of `scale T=f32 N=<n>` is refused, and that the error has a
/// plan with exactly that row.
void expect_refused_with_a_plan(const std::function<void()>& ask, const std::string& n) {
  try {
    ask();
    FAIL() << "N=" << n << " was served";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::not_ready);
    const std::string text = error.what();
    EXPECT_NE(text.find("scale T=f32 N=" + n), std::string::npos) << text;
    const auto at = text.find("[[prewarm]]");
    ASSERT_NE(at, std::string::npos) << text;
    const auto plan = source::parse_plan(text.substr(at), "plan");
    ASSERT_EQ(plan.size(), 1u);
    EXPECT_EQ(plan[0].template_name, "scale");
    EXPECT_EQ(plan[0].values, (std::vector<Parameter>{{"T", "f32"}, {"N", n}}));
  }
}

TEST_F(PathTest, SealedModeServesTheDiskAndNeverCompiles) {
  Options o = options();
  o.mode = Mode::sealed;
  {
    Service service(o);
    expect_refused_with_a_plan([&] { compile(service, "scale", {Dtype::f32, 7}); }, "7");
  }
  {
    Service jit(options());
    compile(jit, "scale", {Dtype::f32, 7});
  }
  Service service(o);
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 7}).outcome, Outcome::disk);
  service.seal();
  expect_refused_with_a_plan([&] { compile(service, "scale", {Dtype::f32, 8}); }, "8");
  EXPECT_EQ(service.core().state().counters.sealed_misses, 1u);
}

TEST_F(PathTest, ACallersDeadlineEndsTheWaitAndNotTheCompile) {
  KILN_NIGHTLY_ONLY();
  tree_.write("t/scale.cu", small_source("template <int N, int M> struct F { static const int v = F<N - 1, 2 "
                                         "* M>::v + F<N - 1, 2 * M + 1>::v; };\n"
                                         "template <int M> struct F<0, M> { static const int v = M; };\n",
                                         "out[i] = T(F<13, 1>::v);"));
  Service service(options());
  auto& opened = service.open("scale", KILN_DEVICE_NONE, "sm_90a");
  const auto unit = source::instantiate(
      opened.shared_origin(),
      source::resolve(opened.origin().manifest, std::vector<Value>{Dtype::f32, 7}, base::Arch{90}));
  runtime::ObtainOptions hurried;
  hurried.deadline = base::Deadline::after(std::chrono::milliseconds(1));
  try {
    service.core().path().obtain(unit, hurried);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::deadline);
  }
  EXPECT_EQ(service.core().path().obtain(unit, {}).outcome, Outcome::waited) << "the flight went on";
  EXPECT_EQ(service.core().state().counters.compiles, 1u);
}

TEST_F(PathTest, ACompileDeadlineIsAnErrorThatIsTriedAgainAfterAPause) {
  tree_.write("t/scale.cu", small_source("template <int N, int M> struct F { static const int v = F<N - 1, 2 "
                                         "* M>::v + F<N - 1, 2 * M + 1>::v; };\n"
                                         "template <int M> struct F<0, M> { static const int v = M; };\n",
                                         "out[i] = T(F<24, 1>::v);"));
  Options o = options();
  o.compile_deadline_s = 1;
  Service service(o);
  for (int i = 0; i < 2; ++i) {
    try {
      compile(service, "scale", {Dtype::f32, 7});
      FAIL();
    } catch (const CompileError& error) {
      EXPECT_EQ(error.code(), Errc::compile_timeout);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  }
  EXPECT_EQ(service.core().state().counters.compile_failures, 2u);
}

TEST_F(PathTest, AnArchThatTheCompilerDoesNotKnowNamesThoseItKnows) {
  Service service(options());
  try {
    compile(service, "scale", {Dtype::f32, 7}, "sm_61");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::unsupported_arch);
    for (const char* part : {"sm_61", "scale", "sm_80"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST_F(PathTest, BadInputIsRefusedBeforeAnythingIsCompiled) {
  Service service(options());
  const auto expect = [&](Errc code, const std::string& name, std::vector<Value> values,
                          std::vector<std::string> parts) {
    try {
      compile(service, name, values);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      for (const auto& part : parts)
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " in " << error.what();
    }
  };
  expect(Errc::unknown_template, "scael", {}, {"scael", "scale"});
  expect(Errc::invalid_value, "scale", {Dtype::bf16}, {"scale", "T", "bf16", "f32"});
  expect(Errc::invalid_value, "scale", {Dtype::f32, 0}, {"scale", "N", "0", "1024"});
  expect(Errc::invalid_value, "scale", {"f32\nfoo"}, {"scale", "T"});
  expect(Errc::invalid_value, "scale", {"f32>"}, {"scale", "T", "f32>"});
  expect(Errc::unknown_parameter, "scale", {}, {"scale", "T"});
  EXPECT_EQ(service.core().state().counters.compiles + service.core().state().counters.compile_failures, 0u);
}

}  // namespace
}  // namespace kiln::testing
