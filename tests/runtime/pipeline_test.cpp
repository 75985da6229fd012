// The one path without a GPU: memory, disk, flight, compile, publish, and what its faults cost the caller
// (nothing).
#include <sys/wait.h>

#include <barrier>
#include <fstream>
#include <thread>

#include "base/log.hpp"
#include "kiln/error.hpp"
#include "runtime/service_fixture.hpp"
#include "source/plan.hpp"

namespace kiln::testing {
namespace {

using runtime::Service;

class PipelineTest : public ServiceTest {};

TEST_F(PipelineTest, CompiledThenMemoryThenDiskWithOneKeyForEveryArch) {
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
    second.pipeline().counters().read(stats);
    EXPECT_EQ(stats.disk_hits, 1u);
    EXPECT_EQ(stats.compiles, 0u);
  }
}

TEST_F(PipelineTest, ImagesAreTheSameFromDiskAndFromTheCompiler) {
  Service first(options());
  const std::string compiled = compile(first, "scale", {Dtype::f32, 7}).image->bytes;
  Service second(options());
  EXPECT_EQ(compile(second, "scale", {Dtype::f32, 7}).image->bytes, compiled);
}

TEST_F(PipelineTest, SixtyFourThreadsAskingForOneColdKeyCompileOnce) {
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
  EXPECT_EQ(service.pipeline().counters().compiles, 1u);
  EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), Outcome::compiled), 1);
  for (const auto& image : images) EXPECT_EQ(image, images[0]);
}

TEST_F(PipelineTest, ProcessesAskingForOneColdKeyCompileOnce) {
  // Every child has a service of its own; children tell by their exit status whether they compiled.
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

TEST_F(PipelineTest, ARefusedSourceIsRememberedUntilItIsEdited) {
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
  EXPECT_EQ(service.pipeline().counters().compile_failures, 1u) << "the second ask costs no compile";
  EXPECT_EQ(service.pipeline().counters().remembered_failures, 1u);

  tree_.write("t/scale.cu", small_source("", "out[i] = T(N);"));
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 7}).outcome, Outcome::compiled);
}

TEST_F(PipelineTest, AFailedCompileGivesEveryWaiterTheLogAndPublishesNothing) {
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
  EXPECT_EQ(service.pipeline().counters().compile_failures, 1u);
  EXPECT_EQ(service.pipeline().store()->stats().entries, 0u);
}

TEST_F(PipelineTest, AnEditedHeaderIsCompiledAnewAndTheOldEntryStays) {
  Service service(options());
  const auto before = compile(service, "scale", {Dtype::f32, 7});
  service.pipeline().flush();
  tree_.write("t/a.h", "#define VALUE 2\n");
  const auto after = compile(service, "scale", {Dtype::f32, 7});
  EXPECT_EQ(after.outcome, Outcome::compiled);
  EXPECT_NE(after.image->bytes, before.image->bytes);
  tree_.write("t/a.h", "#define VALUE 1\n");
  Service other(options());
  EXPECT_EQ(compile(other, "scale", {Dtype::f32, 7}).outcome, Outcome::disk);
}

TEST_F(PipelineTest, WhatTheKeyCannotSeeIsServedEachTimeAndNeverPublished) {
  tree_.write("t/a.h", "__constant__ char stamp[] = __TIME__;\n#define VALUE stamp[0]\n");
  std::vector<std::string> lines;
  base::set_log_sink([&](base::Level, std::string_view line) { lines.emplace_back(line); });
  {
    Service service(options());
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(compile(service, "scale", {Dtype::f32, 7}).outcome, Outcome::compiled);
  }
  base::set_log_sink(nullptr);
  Service service(options());
  EXPECT_EQ(service.pipeline().store()->stats().entries, 0u);
  ASSERT_EQ(lines.size(), 1u) << "one warning, however often";
  EXPECT_NE(lines[0].find("__TIME__"), std::string::npos) << lines[0];
}

TEST_F(PipelineTest, AHeaderThatAppearsEarlierDuringTheCompileIsServedButNotPublished) {
  tree_.write("t/scale.cu", small_source("#include <late.h>\n", "out[i] = T(N + VALUE);"));
  tree_.write("late/late.h", "#define VALUE 1\n");
  std::filesystem::create_directories(tree_.at("early"));
  // A worker that puts the file into the earlier directory before it compiles.
  const std::string worker =
      tree_.write("worker", "#!/bin/sh\nprintf '#define VALUE 2\\n' > " + tree_.at("early/late.h") +
                                "\nexec " KILN_BINARY_DIR "/kiln-worker \"$@\"\n");
  std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
  tree_.write("early/other.h", "\n");
  tree_.write("t/scale.cu",
              small_source("#include <other.h>\n#include <late.h>\n", "out[i] = T(N + VALUE);"));
  Options o = options();
  o.include_path = tree_.at("early") + ':' + tree_.at("late");
  o.worker = worker;
  {
    Service service(o);
    const auto got = compile(service, "scale", {Dtype::f32, 7});
    EXPECT_EQ(got.outcome, Outcome::compiled);
    EXPECT_NE(got.unpublishable.find("appeared"), std::string::npos) << got.unpublishable;
  }
  Service service(options());
  EXPECT_EQ(service.pipeline().store()->stats().entries, 0u);
}

TEST_F(PipelineTest, ARelativeIncludePathMeansTheSameAsTheAbsoluteOne) {
  tree_.write("inc/b.h", "#define VALUE 3\n");
  tree_.write("t/scale.cu",
              small_source("#if __has_include(<b.h>)\n#include <b.h>\n#else\n#define VALUE 9\n#endif\n",
                           "out[i] = T(N + VALUE);"));
  Options relative = options(), absolute = options();
  relative.include_path = "inc";
  absolute.include_path = tree_.at("inc");
  const auto cwd = std::filesystem::current_path();
  std::filesystem::current_path(tree_.path());
  std::string image;
  {
    Service service(relative);
    image = compile(service, "scale", {Dtype::f32, 7}).image->bytes;
  }
  std::filesystem::current_path(cwd);
  Service service(absolute);
  EXPECT_EQ(service.pipeline()
                .compile_alone(
                    source::instantiate(service.catalog().open("scale"),
                                        source::resolve(service.catalog().open("scale")->manifest,
                                                        std::vector<Value>{Dtype::f32, 7}, base::Arch{90})),
                    false)
                .image,
            image);
}

TEST_F(PipelineTest, AHeaderNamedInADefineIsInTheKey) {
  tree_.write("t/scale.toml", small_manifest("scale", "define = { HDR = \"<h.h>\", STAMP = \"0\" }\n"));
  tree_.write("t/scale.cu", small_source("#include HDR\n", "out[i] = T(N + VALUE);"));
  tree_.write("t/h.h", "#define VALUE 3\n");
  Service service(options());
  const auto before = compile(service, "scale", {Dtype::f32, 7});
  EXPECT_EQ(before.unpublishable, "");
  tree_.write("t/h.h", "#define VALUE 4\n");
  EXPECT_NE(compile(service, "scale", {Dtype::f32, 7}).image->key, before.image->key);
  tree_.write("t/scale.toml",
              small_manifest("scale", "define = { HDR = \"<h.h>\", STAMP = \"__TIME__\" }\n"));
  Service stamped(options());
  EXPECT_NE(compile(stamped, "scale", {Dtype::f32, 7}).unpublishable, "");
}

TEST_F(PipelineTest, AFaultOfAFileThatTheKeyDoesNotCoverIsNotRemembered) {
  tree_.write(
      "t/scale.cu",
      small_source("#define STR2(x) #x\n#define STR(x) STR2(x)\n#define NAME hidden\n#include STR(NAME.h)\n",
                   "out[i] = T(VALUE);"));
  tree_.write("t/hidden.h", "#define VALUE oops\n");
  Service service(options());
  EXPECT_THROW(compile(service, "scale", {Dtype::f32, 7}), CompileError);
  tree_.write("t/hidden.h", "#define VALUE 3\n");
  EXPECT_NO_THROW(compile(service, "scale", {Dtype::f32, 7})) << "a fixed file compiles";
}

TEST_F(PipelineTest, ParametersThatAreOnlyInTheGeometryMakeEntriesOfTheirOwn) {
  std::string manifest = small_manifest("scale");
  manifest.replace(manifest.find("[[arg]]"), 7,
                   "[param.B]\nkind = \"int\"\nvalues = [32, 64]\ndefault = 64\n[[arg]]");
  tree_.write("t/scale.toml", manifest);
  Service service(options());
  const auto a = compile(service, "scale", {Dtype::f32, 7, 32}),
             b = compile(service, "scale", {Dtype::f32, 7, 64});
  EXPECT_EQ(a.image->facts.parameters.back().value, "32");
  EXPECT_EQ(b.image->facts.parameters.back().value, "64");
  EXPECT_NE(a.image->key, b.image->key);
}

TEST_F(PipelineTest, AFallbackPlaceThatIsNotOursAloneIsRefused) {
  const std::string place = tree_.at("kiln-" + std::to_string(::geteuid()));
  std::filesystem::create_directories(place);
  std::filesystem::permissions(place, std::filesystem::perms::all);
  tree_.write("file", "");
  Options o = options();
  o.cache_dir = tree_.at("file/cache");
  ::setenv("TMPDIR", tree_.path().c_str(), 1);
  std::string directory;
  {
    Service service(o);
    directory = service.pipeline().store() ? service.pipeline().store()->directory() : "none";
  }
  ::unsetenv("TMPDIR");
  EXPECT_NE(directory, place);
  EXPECT_FALSE(std::filesystem::exists(place + "/v1"));
}

TEST_F(PipelineTest, ADamagedRecordIsAMissAndIsHealed) {
  Key key;
  {
    Service service(options());
    key = compile(service, "scale", {Dtype::f32, 7}).image->key;
  }
  // Flip bytes of the image in the file: the first place where the ELF magic stands behind the key's record.
  const std::string file = tree_.at("cache/v1/data.mdb");
  std::string bytes = base::read_file(file)->bytes;
  const auto elf = bytes.find(
      "\x7f"
      "ELF");
  ASSERT_NE(elf, std::string::npos);
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(static_cast<std::streamoff>(elf) + 100)
      .write("damage", 6);
  {
    Service service(options());
    const auto got = compile(service, "scale", {Dtype::f32, 7});
    EXPECT_EQ(got.outcome, Outcome::compiled);
    EXPECT_EQ(service.pipeline().counters().miss_damaged, 1u);
  }
  Service service(options());
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 7}).outcome, Outcome::disk);
}

TEST_F(PipelineTest, WithoutAnyPlaceForAStoreTheKernelIsStillServed) {
  tree_.write("file", "not a directory");
  Options o = options();
  o.cache_dir = tree_.at("file/cache");
  std::vector<std::string> lines;
  base::set_log_sink([&](base::Level, std::string_view line) { lines.emplace_back(line); });
  ::setenv("TMPDIR", tree_.path().c_str(), 1);  // the first step down
  {
    Service service(o);
    EXPECT_EQ(compile(service, "scale", {Dtype::f32, 7}).outcome, Outcome::compiled);
  }
  ::unsetenv("TMPDIR");
  base::set_log_sink(nullptr);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find(tree_.at("file")), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("KILN_CACHE_DIR"), std::string::npos) << "says what to do";
}

TEST_F(PipelineTest, ATemplateFromMemoryTakesTheSamePath) {
  Options o = options();
  o.template_path.clear();
  std::string manifest = small_manifest("in_memory");
  for (const Outcome expected : {Outcome::compiled, Outcome::disk}) {
    Service service(o);
    service.add({manifest, small_source(), ""});
    EXPECT_EQ(compile(service, "in_memory", {Dtype::f32, 7}).outcome, expected);
  }
}

TEST_F(PipelineTest, SealedModeServesTheDiskAndNeverCompiles) {
  Options o = options();
  o.mode = Mode::sealed;
  {
    Service service(o);
    try {
      compile(service, "scale", {Dtype::f32, 7});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::not_ready);
      EXPECT_NE(std::string(error.what()).find("scale T=f32 N=7"), std::string::npos) << error.what();
    }
  }
  {
    Service jit(options());
    compile(jit, "scale", {Dtype::f32, 7});
  }
  Service service(o);
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 7}).outcome, Outcome::disk);
  service.seal();
  try {
    compile(service, "scale", {Dtype::f32, 8});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::not_ready);
    const std::string text = error.what();
    const auto at = text.find("[[prewarm]]");
    ASSERT_NE(at, std::string::npos) << text;
    const auto plan = source::parse_plan(text.substr(at), "plan");  // what it says is a plan file
    ASSERT_EQ(plan.size(), 1u);
    EXPECT_EQ(plan[0].template_name, "scale");
    EXPECT_EQ(plan[0].values, (std::vector<Parameter>{{"T", "f32"}, {"N", "8"}}));
  }
  EXPECT_EQ(service.pipeline().counters().sealed_misses, 1u);
}

TEST_F(PipelineTest, ACallersDeadlineEndsTheWaitAndNotTheCompile) {
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
    service.pipeline().obtain(unit, hurried);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::deadline);
  }
  EXPECT_EQ(service.pipeline().obtain(unit, {}).outcome, Outcome::waited) << "the flight went on";
  EXPECT_EQ(service.pipeline().counters().compiles, 1u);
}

TEST_F(PipelineTest, ACompileDeadlineIsAnErrorThatIsTriedAgainAfterAPause) {
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
  EXPECT_EQ(service.pipeline().counters().compile_failures, 2u);
}

TEST_F(PipelineTest, AnArchThatTheCompilerDoesNotKnowNamesThoseItKnows) {
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

TEST_F(PipelineTest, BadInputIsRefusedBeforeAnythingIsCompiled) {
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
  EXPECT_EQ(service.pipeline().counters().compiles + service.pipeline().counters().compile_failures, 0u);
}

}  // namespace
}  // namespace kiln::testing
