// kiln compile.
#include <sys/stat.h>

#include <set>

#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

using Compile = KilnCompiler;

TEST_F(Compile, CompilesThenFindsOnDiskUnderTheSameKey) {
  const auto first = kiln({"compile", "scale", "N=3", "--json"}).json();
  const auto second = kiln({"compile", "scale", "N=3", "--json"}).json();
  EXPECT_EQ(first["schema"], "kiln.compile/1");
  EXPECT_EQ(first["outcome"], "compiled");
  EXPECT_EQ(second["outcome"], "disk");
  EXPECT_EQ(first["key"], second["key"]);
  EXPECT_EQ(first["key"].get<std::string>().size(), 64u);
  EXPECT_EQ(first["template"], "scale");
  EXPECT_EQ(first["params"], (nlohmann::json{{"N", "3"}, {"FLAG", "false"}}));
  EXPECT_GT(first["cubin_bytes"].get<int>(), 0);
  EXPECT_EQ(first["cubin_bytes"], second["cubin_bytes"]);
  EXPECT_GT(first["registers"].get<int>(), 0);
  EXPECT_EQ(first["spill_bytes"], 0);
  EXPECT_EQ(first["shared_bytes"], 0);
  EXPECT_GT(first["compile_ms"].get<double>(), 0);
  EXPECT_EQ(second["compile_ms"].get<double>(), 0);
  EXPECT_GT(first["total_ms"].get<double>(), second["total_ms"].get<double>());
  EXPECT_TRUE(first["unpublishable"].is_null());
}

TEST_F(Compile, RepeatAnswersFromMemory) {
  const auto json = kiln({"compile", "scale", "N=3", "--repeat", "2", "--json"}).json();
  ASSERT_EQ(json["results"].size(), 2u);
  EXPECT_EQ(json["results"][0]["outcome"], "compiled");
  EXPECT_EQ(json["results"][1]["outcome"], "memory");
  EXPECT_EQ(json["results"][0]["key"], json["results"][1]["key"]);
}

TEST_F(Compile, EditingTheSourceCompilesAgainUnderAnotherKey) {
  const auto first = kiln({"compile", "scale", "N=3", "--json"}).json();
  write("templates/scale.cu",
        "template <int N, bool FLAG> __global__ void scale(float* x, int n) { x[n] = N; }\n");
  const auto second = kiln({"compile", "scale", "N=3", "--json"}).json();
  EXPECT_EQ(second["outcome"], "compiled");
  EXPECT_NE(first["key"], second["key"]);
}

TEST_F(Compile, EachArchHasItsOwnKeyAndImage) {
  std::set<std::string> keys;
  for (const auto& [arch, name] :
       {std::pair{"sm_80", "sm_80"}, {"sm_90a", "sm_90a"}, {"sm_100a", "sm_100a"}, {"sm_120", "sm_120a"}}) {
    const auto json = kiln({"compile", "scale", "N=3", "--arch", arch, "--json"}).json();
    EXPECT_EQ(json["arch"], name);
    EXPECT_EQ(json["outcome"], "compiled");
    keys.insert(json["key"].get<std::string>());
  }
  EXPECT_EQ(keys.size(), 4u);
}

TEST_F(Compile, SpellingsOfAnArchMeanTheSame) {
  const auto first = kiln({"compile", "scale", "N=3", "--arch", "90", "--json"}).json();
  for (const char* arch : {"sm_90", "sm_90a"}) {
    const auto json = kiln({"compile", "scale", "N=3", "--arch", arch, "--json"}).json();
    EXPECT_EQ(json["key"], first["key"]);
    EXPECT_EQ(json["outcome"], "disk");
  }
}

TEST_F(Compile, ShippedTemplatesCompile) {
  const auto json = kiln({"compile", "rms_norm", "T=bf16", "H=4096", "--json"}).json();
  EXPECT_EQ(json["outcome"], "compiled") << json.dump(2);
  EXPECT_EQ(json["params"]["T"], "bf16");
  EXPECT_EQ(json["spill_bytes"], 0);
}

TEST_F(Compile, WritesTheImageWhereItIsTold) {
  const auto json = kiln({"compile", "scale", "N=3", "-o", path("out.cubin"), "--json"}).json();
  EXPECT_EQ(json["files"]["cubin"], path("out.cubin"));
  const auto image = base::read_file(path("out.cubin"));
  ASSERT_TRUE(image);
  EXPECT_EQ(image->bytes.size(), json["cubin_bytes"].get<std::size_t>());
  EXPECT_EQ(image->bytes.substr(0, 4), "\177ELF");
  const Finished r = kiln({"compile", "scale", "N=3", "-o", "-"});
  EXPECT_EQ(r.out, image->bytes);
}

TEST_F(Compile, JsonAndImageCannotShareStdout) {
  const Finished r = kiln({"compile", "scale", "N=3", "-o", "-", "--json"});
  EXPECT_EQ(r.status, 2);
  EXPECT_EQ(r.json()["error"]["code"], "invalid_argument");
}

TEST_F(Compile, EmitsPtxAndCubinUnderTheTemplatesName) {
  EXPECT_EQ(kiln({"compile", "scale", "N=3", "--emit", "ptx,cubin"}).status, 0);
  ASSERT_TRUE(base::read_file(path("scale.cubin")));
  const auto ptx = base::read_file(path("scale.ptx"));
  ASSERT_TRUE(ptx);
  EXPECT_NE(ptx->bytes.find(".entry"), std::string::npos);
  EXPECT_EQ(ptx->bytes.find('\0'), std::string::npos);
}

TEST_F(Compile, SassComesFromADisassemblerInThePath) {
  write("nvdisasm", "#!/bin/sh\nhead -c 4 \"$1\" | tail -c 3; echo ' disassembled'\n");
  ASSERT_EQ(::chmod(path("nvdisasm").c_str(), 0700), 0);
  const std::string search = path("") + ":/usr/bin:/bin";
  const Finished r = kiln({"compile", "scale", "N=3", "--emit", "sass", "-o", "-"}, {{"PATH", search}});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out, "ELF disassembled\n");
}

TEST_F(Compile, ARefusedSourceIsExitOneWithTheCompilersWords) {
  const Finished r = kiln({"compile", "picky", "N=2", "--json"});
  EXPECT_EQ(r.status, 1);
  EXPECT_EQ(r.json()["error"]["code"], "compile_failed");
  EXPECT_NE(r.err.find("two is refused"), std::string::npos);
  EXPECT_NE(r.err.find("picky N=2"), std::string::npos);
}

TEST_F(Compile, WhatTheKeyCannotSeeIsServedAndNotCached) {
  write("templates/scale.cu",
        "template <int N, bool FLAG> __global__ void scale(float* x, int n) { x[n] = __TIME__[N]; }\n");
  const Finished r = kiln({"compile", "scale", "N=3", "--json"});
  EXPECT_EQ(r.status, 0);
  EXPECT_TRUE(r.json()["unpublishable"].is_string());
  EXPECT_EQ(kiln({"compile", "scale", "N=3", "--json"}).json()["outcome"], "compiled");
}

TEST_F(Compile, ProcessesThatAskAtOnceCompileOnce) {
  std::vector<std::unique_ptr<Running>> running;
  for (int i = 0; i < 6; ++i) running.push_back(start({"compile", "scale", "N=3", "--json"}));
  int compiled = 0;
  std::set<std::string> keys;
  for (auto& process : running) {
    const auto json = process->wait().json();
    compiled += json["outcome"] == "compiled";
    keys.insert(json["key"].get<std::string>());
  }
  EXPECT_EQ(compiled, 1);
  EXPECT_EQ(keys.size(), 1u);
}

TEST_F(Compile, AnUnusableCacheDirectoryIsAWarningOnly) {
  write("file", "in the way");
  const Finished r = kiln({"compile", "scale", "N=3", "--json", "--cache-dir", path("file")});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.err.find("kiln: warning: "), std::string::npos) << r.err;
  EXPECT_EQ(r.json()["outcome"], "compiled");
}

}  // namespace
}  // namespace kiln::test
