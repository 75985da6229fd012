// `kiln run` on kernels that read a host plan, over the fake driver. plan_kernels.cpp computes the kernels.
#include "support/places.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

class RunPlanned : public KilnCompiler {
 protected:
  static constexpr const char* kSource =
      "#define ARGUMENTS(Out) Out* out, const float* k, const int* pages, int* plan, float* partial, int "
      "workers, int kv_heads, \\\n"
      "  int group, int causal, int window_left, int page_size, const int* qo_indptr, const int* kv_indptr, "
      "const int* kv_len\n"
      "#define BODY out[0] = k[0] + pages[0] + plan[0] + partial[0] + workers + kv_heads + group + causal + "
      "window_left + page_size + \\\n"
      "  qo_indptr[0] + kv_indptr[0] + kv_len[0];\n";

  void SetUp() override {
    KilnCompiler::SetUp();
    if (IsSkipped()) return;
    write("templates/attend.cu",
          std::string(kSource) + "__global__ void attend(ARGUMENTS(float)) { BODY }\n");
    write("templates/attend.reference.cu",
          std::string(kSource) + "__global__ void attend_reference(ARGUMENTS(double)) { BODY }\n");
    describe("attend", "requests = 5\nqo_tokens = 40\nkv_tokens = 300\n", "qo_tokens",
             "ceil_div(kv_tokens, max(1, page_size)) + requests");
  }
  static std::string pointer(const std::string& name, const std::string& type, const std::string& more) {
    return "[[arg]]\nname = \"" + name + "\"\ntype = \"ptr<" + type + ">\"\n" + more;
  }
  static std::string integer(const std::string& name, const std::string& value) {
    return "[[arg]]\nname = \"" + name + "\"\ntype = \"i32\"\nvalue = \"" + value + "\"\n";
  }
  void describe(const std::string& name, const std::string& run, const std::string& tokens,
                const std::string& pages) const {
    write(
        "templates/" + name + ".toml",
        "format = 1\n[template]\nname = \"" + name +
            "\"\nsource = \"attend.cu\"\ninstantiate = \"attend\"\ntolerance = { f32 = 1e-5 }\n"
            "[param.CAUSAL]\nkind = \"bool\"\ndefault = true\n[param.TOGETHER]\nkind = \"bool\"\ndefault = "
            "false\n[param.TILES]\nkind = \"bool\"\ndefault = false\n[param.GROUP]\nkind = \"int\"\nrange = "
            "[1, "
            "8]\ndefault = 3\n" +
            pointer("out", "f32",
                    "access = \"write\"\nshape = [\"" + tokens + "\", \"kv_heads * GROUP\"]\n") +
            pointer("k", "f32",
                    "shape = [\"page_size > 0 ? (" + pages + ") * page_size : kv_tokens\", \"kv_heads\"]\n") +
            pointer("pages", "i32", "shape = [\"" + pages + "\"]\nfill = \"permutation\"\n") +
            pointer("plan", "i32", "access = \"readwrite\"\n") +
            pointer("partial", "f32", "access = \"write\"\nshape = [\"2 * workers\", \"8\"]\n") +
            integer("workers", "dev.sms / 8") + integer("kv_heads", "2") + integer("group", "GROUP") +
            integer("causal", "CAUSAL") + integer("window_left", "-1") + integer("page_size", "0") +
            pointer("qo_indptr", "i32", "shape = [\"requests + 1\"]\nfill = \"work_list(qo_indptr)\"\n") +
            pointer("kv_indptr", "i32", "shape = [\"requests + 1\"]\nfill = \"work_list(kv_indptr)\"\n") +
            pointer("kv_len", "i32", "shape = [\"requests\"]\nfill = \"work_list(kv_len)\"\n") +
            "[work_list]\nkind = \"attention\"\nargument = \"plan\"\nworkspace = \"partial\"\nworkers = "
            "\"workers\"\n"
            "tile_rows = 8\ntile_kv = 4\ngroup = \"GROUP\"\ncausal = \"CAUSAL\"\nwindow = 1\nmin_units = "
            "2\nheads_together = \"TOGETHER\"\ntiles_together = \"TILES\"\n" +
            "[work_list.run]\n" + run +
            "kv_heads = \"kv_heads\"\nwindow_left = \"window_left\"\npage_size = \"page_size\"\n"
            "[cost]\nread = \"4 * kv_tokens * kv_heads\"\nwrite = \"4\"\n"
            "[launch]\ngrid = [\"workers\"]\nblock = [32]\n"
            "[reference]\nsource = \"attend.reference.cu\"\ninstantiate = \"attend_reference\"\ngrid = "
            "[1]\nblock = [32]\n");
  }
  Finished run(const Arguments& more, const Environment& environment = {},
               const std::string& name = "attend") {
    Arguments words{"run", name, "--json"};
    words.insert(words.end(), more.begin(), more.end());
    Environment all{{"KILN_LIBCUDA", places::kFakeCuda}, {"LD_PRELOAD", places::kPlanKernels}};
    all.insert(environment.begin(), environment.end());
    return kiln(words, all);
  }
  void expect_right(const Arguments& more, std::size_t sizes = 1, const std::string& name = "attend") {
    Arguments words = more;
    words.push_back("--check");
    const Finished done = run(words, {}, name);
    ASSERT_EQ(done.status, 0) << done.err << done.out;
    const auto json = done.json();
    ASSERT_EQ(json["sizes"].size(), sizes);
    for (const auto& size : json["sizes"]) {
      ASSERT_TRUE(size.contains("check") && size["check"].is_array()) << done.out;
      ASSERT_EQ(size["check"].size(), 1u) << "plan and workspace are no results: " << size;
      EXPECT_EQ(size["check"][0]["argument"], "out");
      EXPECT_GT(size["check"][0]["elements"], 0);
    }
  }
};

TEST_F(RunPlanned, MakesLengthsPlanAndWorkspaceItself) {
  const Finished done = run({"--check"});
  ASSERT_EQ(done.status, 0) << done.err << done.out;
  EXPECT_EQ(done.json()["arguments"],
            "workers=16 kv_heads=2 group=3 causal=1 window_left=-1 page_size=0 requests=5 qo_tokens=40 "
            "kv_tokens=300 equal_lengths=0");
}

TEST_F(RunPlanned, EveryBatchThatAskedForIsRight) {
  expect_right({"requests=1,2,7,33", "kv_tokens=40,100,1000"}, 12);
  expect_right({"equal_lengths=0,1", "workers=1,2,100"}, 6);
  expect_right({"GROUP=1", "kv_heads=1,5"}, 2);
  expect_right({"CAUSAL=false", "kv_tokens=3,300"}, 2);
  expect_right({"window_left=0,5,100", "page_size=0,1,16"}, 9);
  expect_right({"TOGETHER=true", "kv_heads=1,2,6,8", "workers=1,16,100"}, 12);
  expect_right({"TILES=true", "workers=1,4,100", "qo_tokens=40,200"}, 6);
  expect_right({"TILES=true", "TOGETHER=true", "workers=1,4,100", "kv_heads=1,6"}, 6);
  expect_right({"--seed", "7", "kv_tokens=20"});  // fewer than q: some rows see no token
}

TEST_F(RunPlanned, ADecodeStepHasOneTokenOfEachRequest) {
  describe("decode", "requests = 9\nkv_tokens = 500\n", "requests",
           "ceil_div(kv_tokens, max(1, page_size)) + requests");
  expect_right({"page_size=16,1", "requests=1,9,64"}, 6, "decode");
}

TEST_F(RunPlanned, ACheckSeesWhatAKernelLeavesOut) {
  const Finished done = run({"--check"}, {{"PLAN_WRONG", "1"}});
  EXPECT_EQ(done.status, 1);
  EXPECT_FALSE(done.json()["check"][0]["ok"]);
}

TEST_F(RunPlanned, IsTimedOverPlansOfItsOwn) {
  const Finished done = run({"--bench", "--check", "equal_lengths=1"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.json()["bench"]["read_bytes"], 4 * 300 * 2);
}

TEST_F(RunPlanned, ValuesThatNoBatchCanHaveAreRefused) {
  const auto refused = [&](const Arguments& words, const std::string& what) {
    const Finished done = run(words);
    EXPECT_EQ(done.status, 2) << done.out;
    EXPECT_NE(done.err.find(what), std::string::npos) << done.err;
  };
  refused({"equal_lengths=-1"}, "equal_lengths = -1 must be 0 to 2^31 - 1");
  refused({"requests=0"}, "must be");
  refused({"workers=0"}, "workers = 0 must be 1 to 65535");
  refused({"qo_token=3"}, "did you mean 'qo_tokens'?");
}

TEST_F(RunPlanned, WithoutARunItSaysSo) {
  write("templates/bare.cu", "__global__ void bare(int* plan, int workers) { plan[0] = workers; }\n");
  write("templates/bare.toml",
        "format = 1\n[template]\nname = \"bare\"\nsource = \"bare.cu\"\ninstantiate = \"bare\"\n" +
            pointer("plan", "i32", "access = \"readwrite\"\n") + integer("workers", "4") +
            "[work_list]\nkind = \"attention\"\nargument = \"plan\"\nworkers = \"workers\"\ntile_rows = "
            "8\ntile_kv = 4\n"
            "group = 1\n[launch]\ngrid = [\"workers\"]\nblock = [32]\n");
  const Finished done = run({}, {}, "bare");
  EXPECT_EQ(done.status, 1) << done.out;
  EXPECT_NE(done.err.find("[work_list] has no [work_list.run], so `kiln run` cannot make a work list"),
            std::string::npos)
      << done.err;
}

}  // namespace
}  // namespace kiln::test
