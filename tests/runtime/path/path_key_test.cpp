// Images that the path publishes under a key, images that it does not publish, and faults of the store, which
// cost the caller nothing.
#include <fstream>

#include "base/log.hpp"
#include "kiln/error.hpp"
#include "runtime/service_fixture.hpp"
#include "support/places.hpp"

namespace kiln::testing {
namespace {

using runtime::Service;

class PathKeyTest : public ServiceTest {};

TEST_F(PathKeyTest, AnEditedHeaderIsCompiledAndTheOldEntryStays) {
  Service service(options());
  const auto before = compile(service, "scale", {Dtype::f32, 7});
  service.core().path().flush();
  tree_.write("t/a.h", "#define VALUE 2\n");
  const auto after = compile(service, "scale", {Dtype::f32, 7});
  EXPECT_EQ(after.outcome, Outcome::compiled);
  EXPECT_NE(after.image->bytes, before.image->bytes);
  tree_.write("t/a.h", "#define VALUE 1\n");
  Service other(options());
  EXPECT_EQ(compile(other, "scale", {Dtype::f32, 7}).outcome, Outcome::disk);
}

TEST_F(PathKeyTest, FilesReadForAnotherTextOfTheTemplateAreReadAgain) {
  Service service(options());
  auto& core = service.core();
  const Key old = compile(service, "scale", {Dtype::f32, 7}).image->key;
  const auto unit = [&] {
    auto& opened = service.open("scale", KILN_DEVICE_NONE, "sm_90a");
    const std::vector<Value> values = {Dtype::f32, 7};
    return source::instantiate(opened.shared_origin(),
                               source::resolve(opened.origin().manifest, values, base::Arch{90}));
  };
  const auto before = unit();
  runtime::ObtainOptions with;
  with.files =
      std::make_shared<const runtime::KeyedFiles>(core.state().files.read(before, source::Trust::memo));
  tree_.write("t/a.h", "#define VALUE 2\n");
  EXPECT_EQ(core.path().obtain(before, with).image->key, old) << "as the files were when they were read";
  tree_.write("t/scale.cu", small_source("#include <a.h>\n", "out[i] = T(N - VALUE);"));
  const auto after = unit();
  const auto got = core.path().obtain(after, with);
  EXPECT_EQ(got.outcome, Outcome::compiled);
  EXPECT_EQ(got.image->key, core.path().key_of(after).key);
  EXPECT_NE(got.image->key, old);
}

TEST_F(PathKeyTest, WhatTheKeyCannotSeeIsServedEachTimeAndNeverPublished) {
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
  EXPECT_EQ(service.core().state().stores.writable()->stats().entries, 0u);
  ASSERT_EQ(lines.size(), 1u) << "one warning, however often";
  EXPECT_NE(lines[0].find("__TIME__"), std::string::npos) << lines[0];
}

TEST_F(PathKeyTest, AHeaderThatAppearsEarlierDuringTheCompileIsServedButNotPublished) {
  tree_.write("t/scale.cu", small_source("#include <late.h>\n", "out[i] = T(N + VALUE);"));
  tree_.write("late/late.h", "#define VALUE 1\n");
  std::filesystem::create_directories(tree_.at("early"));
  {
    // With records in the store no worker starts before the first miss: the file
    // appears after the first scan.
    tree_.write("t/other.toml", small_manifest("other"));
    tree_.write("t/other.cu", small_source("", "out[i] = T(N);"));
    Service normal(options());
    compile(normal, "other", {Dtype::f32, 7});
  }
  // This worker puts the file into the earlier directory before it compiles.
  const std::string worker =
      tree_.write("worker", "#!/bin/sh\nprintf '#define VALUE 2\\n' > " + tree_.at("early/late.h") +
                                "\nexec " + std::string(places::kBuildDirectory) + "/kiln-worker \"$@\"\n");
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
  EXPECT_EQ(service.core().state().stores.writable()->stats().entries, 1u) << "of the other";
}

TEST_F(PathKeyTest, ARelativeIncludePathMeansTheSameAsTheAbsoluteOne) {
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
  EXPECT_EQ(service.core()
                .compile_alone(
                    source::instantiate(service.catalog().open("scale"),
                                        source::resolve(service.catalog().open("scale")->manifest,
                                                        std::vector<Value>{Dtype::f32, 7}, base::Arch{90})),
                    false)
                .image,
            image);
}

TEST_F(PathKeyTest, AHeaderNamedInADefineIsInTheKey) {
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

TEST_F(PathKeyTest, AComputedIncludeBesideAnExportIsPublished) {
  tree_.write("t/scale.toml", small_manifest("scale", "define = { HDR = \"<h.h>\" }\n") +
                                  "[export]\nSIZE = \"sizeof(int)\"\n");
  tree_.write("t/scale.cu", small_source("#include HDR\n", "out[i] = T(N + VALUE);"));
  tree_.write("t/h.h", "#define VALUE 3\n");
  Service service(options());
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 7}).unpublishable, "");
}

TEST_F(PathKeyTest, ATimeInAnExportIsNeverPublished) {
  tree_.write("t/scale.toml", small_manifest("scale") + "[export]\nSECOND = \"__TIME__[7]\"\n");
  Service service(options());
  EXPECT_NE(compile(service, "scale", {Dtype::f32, 7}).unpublishable, "");
}

TEST_F(PathKeyTest, AFaultOfAFileThatTheKeyDoesNotCoverIsNotRemembered) {
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

TEST_F(PathKeyTest, ParametersThatAreOnlyInTheGeometryMakeEntriesOfTheirOwn) {
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

TEST_F(PathKeyTest, AFallbackPlaceThatIsNotOursAloneIsRefused) {
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
    directory = service.core().state().stores.writable()
                    ? service.core().state().stores.writable()->directory()
                    : "none";
  }
  ::unsetenv("TMPDIR");
  EXPECT_NE(directory, place);
  EXPECT_FALSE(std::filesystem::exists(place + "/v1"));
}

TEST_F(PathKeyTest, ADamagedRecordIsAMissAndIsHealed) {
  Key key;
  {
    Service service(options());
    key = compile(service, "scale", {Dtype::f32, 7}).image->key;
  }
  // Overwrites bytes of the image, which is the first place in the file with the ELF magic.
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
    EXPECT_EQ(service.core().state().counters.miss_damaged, 1u);
  }
  Service service(options());
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 7}).outcome, Outcome::disk);
}

TEST_F(PathKeyTest, WithoutAnyPlaceForAStoreTheKernelIsStillServed) {
  tree_.write("file", "not a directory");
  Options o = options();
  o.cache_dir = tree_.at("file/cache");
  std::vector<std::string> lines;
  base::set_log_sink([&](base::Level, std::string_view line) { lines.emplace_back(line); });
  ::setenv("TMPDIR", tree_.path().c_str(), 1);  // the next place that is tried for a store
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

}  // namespace
}  // namespace kiln::testing
