// ptxas parses the front end's trace, and refuses a trace of gigabytes. FlashAttention-3 has one, but
// is too slow for a test. The compile is then repeated without a trace, and a pass over the syntax
// tells the headers that were read.
#include "compile/backend/nvrtc/log.hpp"
#include "compile/backend/nvrtc/program.hpp"
#include "compile/compiler/header_reuse.hpp"
#include "fixture.hpp"

namespace kiln::testing {
namespace {

using compile::WorkerResponse;

TEST(TraceTooLarge, IsKnownByWhatPtxasSays) {
  WorkerResponse refused;
  refused.status = WorkerResponse::Status::compile_failed;
  refused.log = "ptxas fatal   : Parsed trace file not in expected format\n";
  EXPECT_TRUE(compile::refuses_trace(refused));
  refused.log = "f.cu(3): error: identifier \"Parsed\" is undefined\n";
  EXPECT_FALSE(compile::refuses_trace(refused));
}

TEST(TraceTooLarge, IsDoneWithoutAndTheHeadersAreKnownAllTheSame) {
  KILN_REAL_TOOLKIT(toolkit);
  Tree tree;
  tree.write("t/hidden.h", "#define VALUE 3\n");
  tree.write("t/plain.h", "template <int N> __global__ void f(int* out) { *out = VALUE + N; }\n");
  compile::WorkerRequest request;
  request.compiler = toolkit.compiler;
  request.program_name = std::string(compile::kProgramDirectory) + "f.cu";
  request.source = "#define NAME <hidden.h>\n#include NAME\n#include <plain.h>\n";
  request.roots = {{".k0", tree.at("t")}};
  request.arch = "sm_90a";
  request.name_expressions = {"f<4>"};
  request.trace_headers = true;

  int asked = 0;
  const auto ask = [&](const compile::WorkerRequest& wanted) {
    ++asked;
    EXPECT_EQ(wanted.trace_headers, wanted.only_headers) << "the compile itself has no trace";
    compile::WorkerProcess::Answer answer;
    answer.fate = compile::WorkerProcess::Answer::Fate::answered;
    answer.response = compile::run_nvrtc(wanted, compile::WorkingDirectory::of_thread);
    return answer;
  };
  const WorkerResponse plain = compile::run_nvrtc(request, compile::WorkingDirectory::of_thread);
  ASSERT_EQ(plain.status, WorkerResponse::Status::ok) << plain.log;
  const WorkerResponse without = compile::ask_without_trace(request, ask).response;
  EXPECT_EQ(asked, 2);
  ASSERT_EQ(without.status, WorkerResponse::Status::ok) << without.log << without.message;
  EXPECT_EQ(without.image, plain.image);
  EXPECT_EQ(without.lowered_names, plain.lowered_names);
  EXPECT_EQ(without.headers_read, plain.headers_read);
  EXPECT_EQ(without.headers_read.size(), 2u);
}

}  // namespace
}  // namespace kiln::testing
