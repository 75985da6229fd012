// `kiln run` with one size and with several, on the fake driver: the
// output and its place, not results of a GPU.
#include "support/places.hpp"
#include "tools/terminal.hpp"

namespace kiln::test {
namespace {

class Run : public KilnCompiler {
 protected:
  /// `steps` adds one to each of n elements, and refuses a launch with n = 300.
  void SetUp() override {
    KilnCompiler::SetUp();
    write("templates/steps.cu",
          "template <int N> __global__ void steps(float* out, int n, float by) { out[0] = n + by + N; }\n");
    write("templates/steps.reference.cu",
          "__global__ void steps_reference(double* out, int n, float by) { out[0] = n + by; }\n");
    write("templates/steps.toml",
          "format = 1\n[template]\nname = \"steps\"\nsource = \"steps.cu\"\ninstantiate = \"steps<{N}>\"\n"
          "[param.N]\nkind = \"int\"\nrange = [0, 9]\ndefault = 0\n"
          "[[require]]\nexpr = \"n != 300\"\nmessage = \"n = {n} is not liked\"\n"
          "[[arg]]\nname = \"out\"\ntype = \"ptr<f32>\"\naccess = \"write\"\nshape = [\"n\", \"2\"]\n"
          "[[arg]]\nname = \"n\"\ntype = \"i32\"\nvalue = 64\n"
          "[[arg]]\nname = \"by\"\ntype = \"f32\"\nvalue = 1.0\n"
          "[runtime]\nblocks = { value = 3 }\n"
          "[launch]\ngrid = [\"blocks\"]\nblock = [\"32\"]\n"
          "[reference]\nsource = \"steps.reference.cu\"\ninstantiate = \"steps_reference\"\ngrid = [\"1\"]\n"
          "block = [\"32\"]\n[cost]\nread = \"n\"\nwrite = \"n * 8\"\n");
  }
  Finished run(const Arguments& more) {
    Arguments words{"run", "steps"};
    words.insert(words.end(), more.begin(), more.end());
    return kiln(words, {{"KILN_LIBCUDA", places::kFakeCuda}});
  }
  static std::vector<std::string> arguments_of(const nlohmann::json& out) {
    std::vector<std::string> all;
    for (const auto& size : out.at("sizes")) all.push_back(size.value("arguments", ""));
    return all;
  }
};

TEST_F(Run, ListsMultiplyAndTheLastVariesFastest) {
  const auto out = run({"n=1,64", "by=2,0.5", "--json"}).json();
  EXPECT_EQ(arguments_of(out), (std::vector<std::string>{"n=1 by=2 blocks=3", "n=1 by=0.5 blocks=3",
                                                         "n=64 by=2 blocks=3", "n=64 by=0.5 blocks=3"}));
  EXPECT_FALSE(out.contains("arguments")) << "which of the four?";
}

TEST_F(Run, OneSizeIsWhatTheObjectItselfSays) {
  const auto out = run({"n=64", "--check", "--bench", "--json"}).json();
  ASSERT_EQ(out.at("sizes").size(), 1u);
  for (const char* field : {"arguments", "check", "bench"})
    EXPECT_EQ(out.at(field), out["sizes"][0].at(field));
  EXPECT_EQ(out["bench"].at("write_bytes"), 512);
}

TEST_F(Run, EachSizeIsALineOfAnAlignedTable) {
  const Finished done = run({"n=1,64,4096", "--bench"});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_NE(done.out.find("\n  with by=1 blocks=3\n"), std::string::npos) << "what is the same for all\n"
                                                                          << done.out;
  std::vector<std::string> lines = visible_lines(done.out);
  const auto header =
      std::find_if(lines.begin(), lines.end(), [](const auto& l) { return l.find("TB/s") != l.npos; });
  ASSERT_NE(header, lines.end()) << done.out;
  ASSERT_GE(lines.end() - header, 4) << done.out;
  EXPECT_EQ(header[0].rfind("   n  ", 0), 0u) << done.out;
  EXPECT_EQ(header[1].rfind("   1  ", 0), 0u) << done.out;
  EXPECT_EQ(header[2].rfind("  64  ", 0), 0u) << done.out;
  EXPECT_EQ(header[3].rfind("4096  ", 0), 0u) << done.out;
  for (int i = 1; i < 4; ++i) EXPECT_EQ(header[i].size(), header[0].size()) << done.out;
  EXPECT_NE(done.out.find("stream: the time of a kernel that only reads and writes"), std::string::npos);
}

TEST_F(Run, WhatHasNoElementsIsRefusedBeforeAnythingIsCompiled) {
  const Finished done = run({"n=64,0", "--check", "--json"});
  EXPECT_EQ(done.status, 2);
  EXPECT_EQ(
      done.json()["error"]["message"],
      "argument 'out' of template 'steps' would have no elements: n of its shape is 0; `kiln run` needs "
      "at least one element to launch, compare or time");
  EXPECT_EQ(kiln({"ls", "--json"}).json()["entries"].size(), 0u);
}

TEST_F(Run, ASizeThatCannotRunLeavesWhatWasBeforeIt) {
  const Finished json = run({"n=64,300,128", "--json"});
  EXPECT_EQ(json.status, 2) << json.err;
  EXPECT_EQ(arguments_of(json.json()), std::vector<std::string>{"n=64 by=1 blocks=3"});
  EXPECT_EQ(json.json()["error"]["code"], "requirement");
  EXPECT_NE(json.err.find("n=300 by=1 blocks=3: "), std::string::npos) << json.err;
  EXPECT_NE(json.err.find("n = 300 is not liked"), std::string::npos) << json.err;
  const Finished text = run({"n=64,300,128"});
  EXPECT_EQ(text.status, 2);
  EXPECT_NE(text.out.find("\n64  yes\n"), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find("128"), std::string::npos) << text.out;
}

TEST_F(Run, ValuesThatAreNoneSaySo) {
  EXPECT_NE(run({"n=1,"}).err.find("argument n = '' is no number"), std::string::npos);
  const Finished twice = run({"n=1", "n=2"});
  EXPECT_EQ(twice.status, 2);
  EXPECT_NE(twice.err.find("'n' is given twice; several values are a list: n=1,64"), std::string::npos)
      << twice.err;
  const Finished parameter = run({"N=1,2"});
  EXPECT_EQ(parameter.status, 2);
  EXPECT_NE(parameter.err.find("parameter N = '1,2': only arguments take lists"), std::string::npos)
      << parameter.err;
  std::string many = "n=1";
  for (int i = 2; i < 1100; ++i) many += ',' + std::to_string(i);
  EXPECT_NE(run({many}).err.find("more than 1000 sizes"), std::string::npos);
}

TEST_F(Run, ACheckThatComparesNothingIsNotOk) {
  // The fake driver runs no kernel, so kiln's comparison counts no elements.
  const Finished done = run({"--check"});
  EXPECT_EQ(done.status, 1);
  EXPECT_NE(done.out.find("WRONG  out at n=64: not all of 128 elements were compared"), std::string::npos)
      << done.out;
}

TEST_F(Run, OnATerminalItSaysWhatItDoes) {
  Environment environment = this->environment();
  environment["KILN_LIBCUDA"] = places::kFakeCuda;
  const TerminalRun r =
      run_on_terminal(80, {"run", "steps", "n=1,64,128,256,512,1024", "--bench"}, environment);
  EXPECT_EQ(r.status, 0) << r.screen;
  // The line is redrawn ten times a second, so the machine's speed decides which of the seven steps are seen.
  const bool seen = r.screen.find("compiling steps N=0") != std::string::npos ||
                    r.screen.find("timing with n=") != std::string::npos;
  EXPECT_TRUE(seen) << r.screen;
  const auto lines = visible_lines(r.screen);
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines[0], "steps N=0") << "nothing of it stays";
  for (const std::string& line : lines) EXPECT_LE(line.size(), 80u) << line;
}

using RunWithoutAGpu = KilnCommand;

TEST_F(RunWithoutAGpu, SaysWhatIsMissing) {
  const Finished none =
      kiln({"run", "scale", "N=1", "--json"}, {{"KILN_LIBCUDA", "/nonexistent/libcuda.so.1"}});
  EXPECT_EQ(none.status, 1);
  EXPECT_EQ(none.json()["error"]["code"], "no_driver");
  EXPECT_EQ(none.err.rfind("kiln: error: no CUDA driver: /nonexistent/libcuda.so.1: ", 0), 0u) << none.err;
  EXPECT_NE(none.err.find("launching needs a GPU; `kiln compile` and `kiln tune --dry-run` need none"),
            std::string::npos)
      << none.err;
  const Finished no_device =
      kiln({"run", "scale", "N=1"}, {{"KILN_LIBCUDA", places::kFakeCuda}, {"KILN_FAKE_FAIL", "cuInit=100"}});
  EXPECT_EQ(no_device.status, 1);
  EXPECT_NE(no_device.err.find("CUDA_ERROR_NO_DEVICE"), std::string::npos) << no_device.err;
  EXPECT_NE(no_device.err.find("needs a GPU"), std::string::npos) << no_device.err;
}

}  // namespace
}  // namespace kiln::test
