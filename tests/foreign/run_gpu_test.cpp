// `kiln run` on generated inputs, on a GPU. A kernel checks that the inputs are what their fills say.
#include "support/places.hpp"
#include "tools/on_gpu.hpp"

namespace kiln::test {
namespace {

class RunOnGpu : public OnGpu<KilnCommand> {
 protected:
  Finished run(Arguments more) {
    more.insert(more.begin(), "run");
    const std::string fixtures = std::string(places::kSourceDirectory) + "/tests/fixtures/foreign";
    more.insert(more.end(), {"--check", "--json", "--template-path", fixtures});
    return kiln(more, {{"KILN_LIBCUDA", "libcuda.so.1"}});
  }
};

TEST_F(RunOnGpu, GeneratedInputsAreWhatTheirFillsSay) {
  for (const char* seed : {"1", "2", "77"}) {
    const Finished done = run({"fills", "--seed", seed});
    EXPECT_EQ(done.status, 0) << done.out << done.err;
    for (const auto& checked : done.json().at("check")) EXPECT_TRUE(checked.at("ok")) << checked.dump();
  }
  EXPECT_EQ(run({"fills", "n=4097", "segments=1"}).status, 0);
}

TEST_F(RunOnGpu, AtomicOperationsOfPyTorchChangeOneCellEach) {
  for (const std::string type : {"u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"}) {
    const Finished done = run({"torch_atomics", "T=" + type});
    EXPECT_EQ(done.status, 0) << type << '\n' << done.out << done.err;
  }
}

TEST_F(RunOnGpu, AStructIsForAProgramToMake) {
  const Finished done = run({"state", "T=f32", "D=4"});
  EXPECT_EQ(done.status, 2) << done.out;
  EXPECT_NE(done.err.find("'params' of template 'state' is a struct, which only a program can make"),
            std::string::npos)
      << done.err;
}

}  // namespace
}  // namespace kiln::test
