// Sources that never end, nest without end, or write without end.
#include <thread>

#include "support/time_limit.hpp"
#include "tests/fault/compile/hostile_fixture.hpp"

namespace kiln::testing {
namespace {

class HostileSource : public HostileTest {};

const std::string kHostileKernel =
    "template <class T, int N> __global__ void scale(T* out, int n) { out[0] = T(BODY); }\n";

std::string with_body(const std::string& before, const std::string& body) {
  return before + "#define BODY " + body + '\n' + kHostileKernel;
}
std::string repeated(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

/// A source with 2^26 instantiations.
const std::string kExponential = with_body(
    "template <int N, int M> struct F { static const int v = F<N - 1, 2 * M>::v + F<N - 1, 2 * M + 1>::v; "
    "};\n"
    "template <int M> struct F<0, M> { static const int v = M; };\n",
    "F<26, 1>::v");

/// A source that expands to 10^9 tokens.
std::string macro_bomb() {
  std::string text = "#define A0 1 +\n";
  for (int i = 1; i < 10; ++i) {
    text += "#define A" + std::to_string(i) + ' ' + repeated('A' + std::to_string(i - 1) + ' ', 10) + '\n';
  }
  return with_body(text, "A9 1");
}

TEST_F(HostileSource, ExponentialTemplatesAreKilledAtTheDeadline) {
  Service service(with_deadline(2));
  add(service, "exponential", kExponential);
  expect_fails(service, "exponential", Errc::compile_timeout, 2,
               {"exponential T=f32 N=7", "killed at its deadline", "KILN_COMPILE_DEADLINE"});
  expect_works(service);
}

TEST_F(HostileSource, AMacroBombIsKilledAtTheDeadlineOrRunsOutOfMemory) {
  Service service(with_deadline(2));
  add(service, "bomb", macro_bomb());
  const auto start = steady_clock::now();
  try {
    compile(service, "bomb", {Dtype::f32, 7});
    ADD_FAILURE() << "a macro of 10^9 tokens was compiled";
  } catch (const CompileError& error) {
    EXPECT_TRUE(error.code() == Errc::compile_timeout || error.code() == Errc::compile_crashed)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("bomb T=f32 N=7"), std::string::npos);
  }
  EXPECT_LT(steady_clock::now() - start, at_most(milliseconds(3000)));
  expect_works(service);
}

TEST_F(HostileSource, ThirtyThousandParenthesesCompileOrFailCleanly) {
  Service service(with_deadline(60));
  add(service, "nested", with_body("", repeated("(", 30'000) + "N" + repeated(")", 30'000)));
  try {
    EXPECT_EQ(compile(service, "nested", {Dtype::f32, 7}).outcome, Outcome::compiled);
  } catch (const CompileError& error) {
    EXPECT_EQ(error.code(), Errc::compile_failed) << error.what();
  }
  expect_works(service);
}

TEST_F(HostileSource, ThreeMillionParenthesesCostTheWorkerAndNotTheHost) {
  Service service(with_deadline(60));
  add(service, "nested", with_body("", repeated("(", 3'000'000) + "N" + repeated(")", 3'000'000)));
  try {
    compile(service, "nested", {Dtype::f32, 7});
    ADD_FAILURE() << "256 MiB of stack were enough: nest deeper";
  } catch (const CompileError& error) {
    EXPECT_EQ(error.code(), Errc::compile_crashed) << error.what();
    EXPECT_NE(std::string(error.what()).find("signal 11"), std::string::npos) << error.what();
  }
  expect_works(service);
}

TEST_F(HostileSource, AnEndlessConstexprLoopIsRefusedByTheCompilerOrKilled) {
  Service service(with_deadline(2));
  add(service, "loop",
      with_body("__device__ constexpr int f() { int i = 0; for (;;) i ^= 1; return i; }\n"
                "__device__ constexpr int value = f();\n",
                "value"));
  const auto start = steady_clock::now();
  try {
    compile(service, "loop", {Dtype::f32, 7});
    ADD_FAILURE() << "an endless loop was compiled";
  } catch (const CompileError& error) {
    EXPECT_TRUE(error.code() == Errc::compile_failed || error.code() == Errc::compile_timeout)
        << error.what();
  }
  EXPECT_LT(steady_clock::now() - start, at_most(milliseconds(3000)));
  expect_works(service);
}

/// Each of 4,000 warnings repeats its source line: 230 MB of log from 50 KB of source.
TEST_F(HostileSource, HundredsOfMegabytesOfWarningsDoNotReachTheHost) {
  std::string variables;
  for (int i = 0; i < 4000; ++i) variables += "int a" + std::to_string(i) + "; ";
  Service service(with_deadline(60));
  add(service, "loud", with_body("__device__ void loud() { " + variables + "}\n", "N"));
  const auto loud = compile(service, "loud", {Dtype::f32, 7});
  EXPECT_EQ(loud.outcome, Outcome::compiled);
  EXPECT_LE(loud.image->facts.log.size(), 17u << 10);
  EXPECT_NE(loud.image->facts.log.find("declared but never referenced"), std::string::npos);
  add(service, "wrong", with_body("__device__ void loud() { " + variables + "undeclared = 1; }\n", "N"));
  expect_fails(service, "wrong", Errc::compile_failed, 60, {"[cut: the compiler's log is longer]"});
  expect_works(service);
}

TEST_F(HostileSource, AnImageOf300MegabytesIsRefusedInTheWorker) {
  Service service(with_deadline(60));
  add(service, "huge",
      "template <class T, int N> __global__ void scale(T* out, int n) {\n"
      "  asm volatile(\".global .align 4 .b8 kiln_huge[300000000] = {1};\");\n  out[0] = T(N);\n}\n");
  expect_fails(service, "huge", Errc::compile_failed, 60,
               {"huge T=f32 N=7", "the image has 3000", "at most 268435456 are allowed"});
  expect_works(service);
}

TEST_F(HostileSource, AWorkerKilledInMidCompileSaysSo) {
  Service service(with_deadline(60));
  expect_works(service);
  const auto workers = children();
  ASSERT_EQ(workers.size(), 1u);
  std::thread killer([pid = workers[0]] {
    std::this_thread::sleep_for(milliseconds(700));
    ::kill(pid, SIGKILL);
  });
  add(service, "exponential", kExponential);
  expect_fails(service, "exponential", Errc::compile_crashed, 10, {"the compile worker died", "signal 9"});
  killer.join();
  expect_works(service);
}

}  // namespace
}  // namespace kiln::testing
