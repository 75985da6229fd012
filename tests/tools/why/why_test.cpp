// kiln why and kiln diff: they name every field in which keys differ, and every step that would serve.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "base/hash.hpp"
#include "cache/flight/flight.hpp"
#include "cache/store/store.hpp"
#include "compile/key/key.hpp"
#include "tests/support/other_user.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

using EmptyWhy = KilnCommand;

TEST_F(EmptyWhy, AnEmptyStoreIsAMissThatSaysSo) {
  const Finished r = kiln({"why", "scale", "N=1", "--arch", "sm_90a"});
  EXPECT_EQ(r.status, 3) << r.err;
  EXPECT_EQ(r.out.rfind("miss: nothing is cached in " + cache() + " yet\n", 0), 0u) << r.out;
  EXPECT_EQ(kiln({"why", "scale", "N=1", "--json"}).json()["nearest"].size(), 0u);
  EXPECT_NE(::access(cache().c_str(), F_OK), 0) << "why creates nothing";
}

TEST_F(EmptyWhy, MistakesAreUsageErrors) {
  EXPECT_EQ(kiln({"why", "scael", "N=1"}).status, 2);
  EXPECT_EQ(kiln({"why", "scale", "M=1"}).status, 2);
  EXPECT_EQ(kiln({"why", "scale", "N=1", "--all", "0"}).status, 2);
  EXPECT_EQ(kiln({"why", "scale", "N=1", "--arch", "sm_1"}).status, 2);
}

class Why : public KilnCompiler {
 protected:
  Why() {
    write("templates/edit.toml", manifest("", "edit<{N}>"));
    write("templates/edit.cu", kSource);
    write("templates/edit.cuh", "#pragma once\n");
  }
  static std::string manifest(const std::string& compile, const std::string& instantiate) {
    return "format = 1\n[template]\nname = \"edit\"\nsource = \"edit.cu\"\ninstantiate = \"" + instantiate +
           "\"\nsummary = \"a header beside it\"\n" + compile +
           "[param.N]\nkind = \"int\"\nrange = [1, 9]\n[launch]\ngrid = [\"1\"]\nblock = [\"32\"]\n";
  }
  std::string compile(const std::string& n = "N=1", const std::string& arch = "sm_90a") {
    const Finished r = kiln({"compile", "edit", n, "--arch", arch, "--json"});
    EXPECT_EQ(r.status, 0) << r.err;
    return r.json()["key"];
  }
  Finished why(const Arguments& more = {}, const Environment& environment = {}) {
    Arguments all{"why", "edit", "N=1", "--arch", "sm_90a"};
    all.insert(all.end(), more.begin(), more.end());
    return kiln(all, environment);
  }
  /// The only difference from the nearest entry. Fails the test when there is not exactly one.
  nlohmann::json difference(const Environment& environment = {}) {
    const Finished r = why({"--json"}, environment);
    EXPECT_EQ(r.status, 3) << r.err;
    const auto json = r.json();
    if (json["nearest"].size() != 1 || json["nearest"][0]["differs"].size() != 1) {
      ADD_FAILURE() << json.dump(1);
      return {{"field", ""}, {"name", ""}, {"says", ""}};
    }
    return json["nearest"][0]["differs"][0];
  }
  std::string first_line(const Arguments& more = {}) {
    const Finished r = why(more);
    return r.out.substr(0, r.out.find('\n'));
  }
  std::shared_ptr<cache::Store> open(const std::string& directory) const {
    cache::StoreOptions options;
    options.directory = directory;
    return cache::Store::open(options);
  }
  /// Puts the record of `key` into a store of its own, after `edit` has changed its key text.
  void refill(const std::string& key, const std::function<void(std::string&)>& edit) {
    const auto record = open(cache())->peek(*Key::from_hex(key), base::Deadline::never());
    ASSERT_TRUE(record);
    cache::Record edited = *record;
    edit(edited.key_text);
    const std::string_view text = edited.key_text;
    const std::size_t section = compile::toolchain_section(text);
    edited.key = {base::digest_of(text.substr(0, section)), base::digest_of(text.substr(section))};
    ASSERT_NE(edited.key, *Key::from_hex(key)) << "the edit changed nothing";
    ASSERT_EQ(open(path("edited"))->put(edited).put, cache::Put::stored);
  }
  static constexpr const char* kSource =
      "#include \"edit.cuh\"\ntemplate <int N> __global__ void edit() {}\n";
};

TEST_F(Why, WhereATemplateLiesIsNotInItsKey) {
  std::filesystem::create_directory(path("templates/parts"));
  write("templates/edit.cu", "#include \"parts/edit.cuh\"\n" + std::string(kSource));
  write("templates/parts/edit.cuh", "#pragma once\n");
  const std::string key = compile();
  std::filesystem::create_directory(path("templates/family"));
  for (const std::string file : {"edit.toml", "edit.cu"})
    std::filesystem::rename(path("templates/" + file), path("templates/family/" + file));
  EXPECT_EQ(compile(), key);
  EXPECT_EQ(why().status, 0) << why().out;
}

TEST_F(Why, AHitSaysWhereFrom) {
  const std::string key = compile();
  const Finished r = why();
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out.rfind("hit: edit N=1 for sm_90a is served from disk (" + cache() + ")", 0), 0u) << r.out;
  EXPECT_NE(r.out.find(key), std::string::npos) << r.out;
  const auto json = why({"--json"}).json();
  EXPECT_EQ(json["outcome"], "disk");
  EXPECT_EQ(json["key"], key);
  EXPECT_EQ(json["entry"]["key"], key);
  EXPECT_EQ(json["directory"], cache());
}

TEST_F(Why, AHitFromALayerNamesTheLayer) {
  write("plan.toml", "[[prewarm]]\ntemplate = \"edit\"\nN = 1\n");
  ASSERT_EQ(kiln({"prewarm", path("plan.toml"), "--layer", path("layer"), "--arch", "sm_90a"}).status, 0);
  const auto json = why({"--json"}, {{"KILN_CACHE_LAYERS", path("layer")}}).json();
  EXPECT_EQ(json["outcome"], "layer");
  EXPECT_EQ(json["directory"], path("layer"));
  EXPECT_EQ(why({}, {{"KILN_CACHE_LAYERS", path("layer")}}).status, 0);
  write("templates/edit.cu", std::string(kSource) + "// new\n");
  EXPECT_EQ(difference({{"KILN_CACHE_LAYERS", path("layer")}})["field"], "source")
      << "a layer's entries are compared with, too";
}

TEST_F(Why, NothingOfTheTemplateIsSaid) {
  ASSERT_EQ(kiln({"compile", "scale", "N=1"}).status, 0);
  EXPECT_EQ(first_line(), "miss: nothing of edit is cached in " + cache() + " (1 entry of other templates)");
}

TEST_F(Why, NamesTheParameterThatDiffers) {
  compile("N=2");
  EXPECT_EQ(first_line(), "miss: edit N=1 for sm_90a is not cached; the nearest entry has N=2");
  const auto json = why({"--json"}).json()["nearest"][0]["differs"];
  EXPECT_EQ(json[0]["field"], "parameter");
  EXPECT_EQ(json[0]["name"], "N");
  EXPECT_EQ(json[0]["cached"], "2");
  EXPECT_EQ(json[0]["asked"], "1");
  EXPECT_EQ(json[1]["field"], "name");
}

TEST_F(Why, NamesTheArch) {
  compile("N=1", "sm_80");
  EXPECT_EQ(difference()["field"], "arch");
  EXPECT_EQ(first_line(), "miss: edit N=1 is cached for sm_80, and not for sm_90a");
}

TEST_F(Why, NamesTheSourceThatChanged) {
  compile();
  write("templates/edit.cu", std::string(kSource) + "// new\n");
  EXPECT_EQ(difference()["field"], "source");
  EXPECT_EQ(first_line().rfind("miss: edit.cu changed since edit N=1 was compiled ", 0), 0u) << first_line();
}

TEST_F(Why, NamesTheHeaderThatChanged) {
  compile();
  write("templates/edit.cuh", "#pragma once\n// new\n");
  const auto d = difference();
  EXPECT_EQ(d["field"], "include");
  EXPECT_EQ(d["name"], "edit.cuh");
  EXPECT_EQ(first_line().rfind("miss: edit.cuh changed since edit N=1 was compiled ", 0), 0u) << first_line();
}

TEST_F(Why, NamesTheHeaderThatCameAndTheOneThatIncludesIt) {
  compile();
  write("templates/more.cuh", "#pragma once\n");
  write("templates/edit.cuh", "#pragma once\n#include \"more.cuh\"\n");
  const auto differs = why({"--json"}).json()["nearest"][0]["differs"];
  ASSERT_EQ(differs.size(), 2u) << differs.dump(1);
  EXPECT_EQ(differs[1]["name"], "more.cuh");
  EXPECT_TRUE(differs[1]["cached"].is_null());
  EXPECT_NE(differs[1]["says"].get<std::string>().find("\"more.cuh\" in edit.cuh"), std::string::npos);
}

TEST_F(Why, NamesTheHeaderThatWent) {
  write("templates/edit.cuh", "#pragma once\n#include \"more.cuh\"\n");
  write("templates/more.cuh", "#pragma once\n");
  compile();
  write("templates/edit.cuh", "#pragma once\n");
  const auto differs = why({"--json"}).json()["nearest"][0]["differs"];
  ASSERT_EQ(differs.size(), 2u) << differs.dump(1);
  EXPECT_EQ(differs[1]["name"], "more.cuh");
  EXPECT_TRUE(differs[1]["asked"].is_null());
}

TEST_F(Why, AHeaderThatIsNotThereAnyMoreIsNotOneThatIsNoLongerIncluded) {
  compile();
  ASSERT_EQ(::unlink(path("templates/edit.cuh").c_str()), 0);
  const std::string line = first_line();
  EXPECT_EQ(line.rfind("miss: edit.cuh is not found any more, as it was when edit N=1 was compiled ", 0), 0u)
      << line;
  EXPECT_EQ(difference()["says"], "edit.cuh is not found any more (\"edit.cuh\" in the source)");
  write("templates/edit.cu", "template <int N> __global__ void edit() {}\n");
  const auto differs = why({"--json"}).json()["nearest"][0]["differs"];
  ASSERT_EQ(differs.size(), 2u) << differs.dump(1);
  EXPECT_EQ(differs[1]["says"], "edit.cuh is included in the cached entry only (\"edit.cuh\" in the source)");
}

TEST_F(Why, NamesTheOptionThatChangedAndTheOneThatCame) {
  compile();
  write("templates/edit.toml", manifest("[compile]\nstd = \"c++20\"\n", "edit<{N}>"));
  const auto d = difference();
  EXPECT_EQ(d["field"], "option");
  EXPECT_EQ(d["cached"], "-std=c++17");
  EXPECT_EQ(d["asked"], "-std=c++20");
  write("templates/edit.toml", manifest("[compile]\ndefine = { SLOW = \"1\" }\n", "edit<{N}>"));
  const auto added = difference();
  EXPECT_TRUE(added["cached"].is_null());
  EXPECT_EQ(added["asked"], "-DSLOW=1");
}

TEST_F(Why, NamesTheNameExpression) {
  compile();
  write("templates/edit.toml", manifest("", "::edit<{N}>"));
  EXPECT_EQ(difference()["field"], "name");
}

struct Edit {
  const char *label, *field, *says;
};
class WhyOfAnEditedKey : public Why, public ::testing::WithParamInterface<Edit> {};

TEST_P(WhyOfAnEditedKey, IsNamed) {
  write("templates/edit.cu", "#include <cuda_fp16.h>\n" + std::string(kSource));
  const std::string key = compile();
  const Edit& edit = GetParam();
  refill(key, [&](std::string& text) {
    const auto line = ('\n' + text).find('\n' + std::string(edit.label) + ' ');
    if (line == std::string::npos) GTEST_SKIP() << "no " << edit.label << " here";
    const auto end = text.find('\n', line);
    text[end - 1] = text[end - 1] == '0' ? '1' : '0';
  });
  if (IsSkipped()) return;
  const auto d = difference({{"KILN_CACHE_DIR", path("edited")}});
  EXPECT_EQ(d["field"], edit.field);
  EXPECT_NE(d["says"].get<std::string>().find(edit.says), std::string::npos) << d.dump(1);
}
INSTANTIATE_TEST_SUITE_P(Fields, WhyOfAnEditedKey,
                         ::testing::Values(Edit{"kiln-key", "kiln-key", "version of the key"},
                                           Edit{"source", "source", "source has changed"},
                                           Edit{"include", "include", "edit.cuh has changed"},
                                           Edit{"facts", "facts", "version of kiln's facts"},
                                           Edit{"nvrtc", "nvrtc", "NVRTC is "},
                                           Edit{"builtins", "builtins", "builtins library is "},
                                           Edit{"header", "header", "of the toolkit has changed"}),
                         [](const auto& row) {
                           std::string name = row.param.field;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_F(Why, NamesKilnsOwnOption) {
  refill(compile(), [](std::string& text) {
    const auto line = text.find("kiln-option ");
    text.insert(line, "kiln-option 6:--fast\n");
  });
  const auto d = difference({{"KILN_CACHE_DIR", path("edited")}});
  EXPECT_EQ(d["field"], "kiln-option");
  EXPECT_EQ(d["cached"], "--fast");
}

TEST_F(Why, NamesAProjectHeaderReachedThroughTheToolkit) {
  refill(compile(), [](std::string& text) { text += "project-header 9:.k0/x.cuh 2:ab\n"; });
  const auto d = difference({{"KILN_CACHE_DIR", path("edited")}});
  EXPECT_EQ(d["field"], "project-header");
  EXPECT_EQ(d["name"], "x.cuh");
}

TEST_F(Why, AnotherToolchainsRecordServesWhereTheRuleAllowsIt) {
  refill(compile(), [](std::string& text) { text += "kiln-option 6:--fast\n"; });
  const Environment sealed{{"KILN_CACHE_DIR", path("edited")}, {"KILN_MODE", "sealed"}};
  const Finished r = why({"--json"}, sealed);
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.json()["outcome"], "foreign_toolchain");
  EXPECT_EQ(why({"--json"}, {{"KILN_CACHE_DIR", path("edited")}}).json()["outcome"], "compile");
}

TEST_F(Why, ARecordThatTheRuleRefusesAHostWithoutACompilerIsNamed) {
  const std::string key = compile();
  const Environment slim{{"KILN_CUDA_HOME", path("none")}, {"KILN_TOOLCHAIN", "own"}};
  const Finished r = why({}, slim);
  EXPECT_EQ(r.status, 3) << r.err;
  EXPECT_EQ(r.out.rfind("miss: edit N=1 was compiled ", 0), 0u) << r.out;
  EXPECT_NE(r.out.find("by another toolchain"), std::string::npos) << r.out;
  const auto json = why({"--json"}, slim).json();
  EXPECT_EQ(json["outcome"], "no_compiler");
  EXPECT_EQ(json["nearest"][0]["key"], key);
  EXPECT_TRUE(json["nearest"][0]["differs"].empty());
}

TEST_F(Why, AFileThatIsFoundElsewhereHasNotChanged) {
  write("templates/edit.toml", manifest("[compile]\ninclude_dirs = [\"more\"]\n", "edit<{N}>"));
  ASSERT_EQ(::mkdir(path("templates/more").c_str(), 0700), 0);
  write("templates/edit.cu", "#include \"moves.cuh\"\n" + std::string(kSource));
  write("templates/moves.cuh", "#pragma once\n");
  compile();
  ASSERT_EQ(::rename(path("templates/moves.cuh").c_str(), path("templates/more/moves.cuh").c_str()), 0);
  const std::string line = first_line();
  EXPECT_EQ(line.rfind("miss: the place of ", 0), 0u) << line;
  EXPECT_NE(line.find(" among the include directories changed since "), std::string::npos) << line;
}

TEST_F(Why, AnOptionWithAnotherValueIsNoNewOption) {
  compile();
  write("templates/edit.toml", manifest("[compile]\nstd = \"c++20\"\n", "edit<{N}>"));
  EXPECT_EQ(first_line().rfind("miss: option -std=c++17 became -std=c++20 since ", 0), 0u) << first_line();
}

TEST_F(Why, PrefersTheSameParametersWithOtherSourcesToOtherParameters) {
  compile("N=2");
  const std::string same = compile("N=1");
  compile("N=3");
  write("templates/edit.cuh", "#pragma once\n// new\n");
  const auto json = why({"--json", "--all", "9"}).json();
  ASSERT_EQ(json["nearest"].size(), 3u);
  EXPECT_EQ(json["nearest"][0]["key"], same);
  EXPECT_EQ(json["entries_of_template"], 3);
  EXPECT_NE(why().out.find("2 entries of edit (--all N"), std::string::npos);
}

TEST_F(Why, SealedGivesThePlanThatWouldHelp) {
  compile("N=2");
  const Finished r = why({}, {{"KILN_MODE", "sealed"}});
  EXPECT_EQ(r.status, 3);
  EXPECT_NE(r.out.find("refused: mode sealed"), std::string::npos) << r.out;
  write("plan.toml", why({"--json"}, {{"KILN_MODE", "sealed"}}).json()["plan"]);
  EXPECT_EQ(kiln({"prewarm", path("plan.toml")}).status, 0);
  EXPECT_EQ(why({}, {{"KILN_MODE", "sealed"}}).status, 0);
}

TEST_F(Why, ACompileUnderWayIsWaitedFor) {
  const std::string key = compile("N=1");
  const auto store = open(cache());
  const std::string identity = store->identity();
  ASSERT_EQ(kiln({"clear", "--yes"}).status, 0);
  const auto file = cache::FlightFile::open({.store_identity = identity, .store_place = cache() + "/v1"});
  auto taken = file->take(*Key::from_hex(key), base::Deadline::after(std::chrono::seconds(10)));
  ASSERT_TRUE(taken.flight);
  taken.flight->compiling("edit N=1 for sm_90a");
  const Finished r = why({"--json"});
  EXPECT_EQ(r.status, 3) << r.err;
  EXPECT_EQ(r.json()["outcome"], "waiting");
  EXPECT_EQ(r.json()["flight"]["pid"], ::getpid());
  EXPECT_EQ(first_line().rfind("waiting: pid " + std::to_string(::getpid()), 0), 0u) << first_line();
  taken.flight->unpublished();
  taken.flight.reset();
  EXPECT_EQ(why({"--json"}).json()["outcome"], "compile");
}

TEST_F(Why, WhatIsNeverCachedSaysWhy) {
  write("templates/edit.cu", std::string(kSource) + "__device__ const char* when = __DATE__;\n");
  const Finished r = why();
  EXPECT_EQ(r.status, 3);
  EXPECT_EQ(r.out.rfind("miss: never cached: the source mentions __DATE__", 0), 0u) << r.out;
}

TEST_F(Why, AComputedIncludeMayKeepACompileOutOfTheCache) {
  write("templates/edit.cu", "#define NAME(x) <x.cuh>\n#include NAME(edit)\n" + std::string(kSource));
  const Finished r = why();
  EXPECT_EQ(r.status, 3);
  EXPECT_NE(r.out.find("a compile of it is not cached: "), std::string::npos) << r.out;
  EXPECT_NE(why({"--json"}).json()["perhaps_unpublishable"].get<std::string>().find("computed #include"),
            std::string::npos);
  write("templates/edit.cu", kSource);
  EXPECT_TRUE(why({"--json"}).json()["perhaps_unpublishable"].is_null());
}

TEST_F(Why, ACompileByAProcessThatIsStoppedIsSaidToBe) {
  const std::string key = compile("N=1");
  const std::string identity = open(cache())->identity();
  ASSERT_EQ(kiln({"clear", "--yes"}).status, 0);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const auto file = cache::FlightFile::open({.store_identity = identity, .store_place = cache() + "/v1"});
    auto taken = file->take(*Key::from_hex(key), base::Deadline::after(std::chrono::seconds(10)));
    if (taken.flight) taken.flight->compiling("edit N=1 for sm_90a");
    if (::write(ends[1], taken.flight ? "y" : "n", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  ::close(ends[1]);
  char taken = 0;
  EXPECT_EQ(::read(ends[0], &taken, 1), 1);
  EXPECT_EQ(taken, 'y');
  EXPECT_EQ(why({"--json"}).json()["flight"]["stopped"], false);
  EXPECT_EQ(::kill(holder, SIGSTOP), 0);
  int status = 0;
  EXPECT_EQ(::waitpid(holder, &status, WUNTRACED), holder);
  EXPECT_TRUE(WIFSTOPPED(status));
  const auto json = why({"--json"}).json();
  const std::string line = first_line();
  EXPECT_EQ(::kill(holder, SIGKILL), 0);
  EXPECT_EQ(::waitpid(holder, &status, 0), holder);
  ::close(ends[0]);
  EXPECT_EQ(json["outcome"], "waiting");
  EXPECT_EQ(json["flight"]["stopped"], true);
  EXPECT_EQ(line.rfind("waiting: pid " + std::to_string(holder), 0), 0u) << line;
  EXPECT_NE(line.find(" (stopped) has been compiling edit N=1 for sm_90a for "), std::string::npos) << line;
  EXPECT_NE(line.find("; callers stop waiting for it after the compile deadline"), std::string::npos) << line;
}

TEST_F(Why, ADamagedEntryIsExitFour) {
  const std::string key = compile();
  ASSERT_EQ(kiln({"show", key, "--image", path("image")}).status, 0);
  const std::string image = base::read_file(path("image"))->bytes, file = cache() + "/v1/data.mdb";
  std::string bytes = base::read_file(file)->bytes;
  const auto at = bytes.find(image.substr(0, 256));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 128] ^= 1;
  base::write_file(file, bytes, 0600);
  const Finished r = why();
  EXPECT_EQ(r.status, 4);
  EXPECT_EQ(r.out.rfind("miss: the entry of edit N=1 for sm_90a in " + cache() + " is damaged", 0), 0u)
      << r.out;
  EXPECT_EQ(why({"--json"}).json()["error"]["code"], "damaged");
}

TEST_F(Why, AStoreOfAnotherVersionIsPointedOut) {
  ASSERT_EQ(::mkdir(cache().c_str(), 0700), 0);
  ASSERT_EQ(::mkdir((cache() + "/v2").c_str(), 0700), 0);
  write("cache/v2/data.mdb", "");
  EXPECT_NE(why().out.find(cache() + "/v2 is the store of another version"), std::string::npos);
}

/// A cache that root has filled and everybody may read, such as one in a container image.
class WhyOfAReadOnlyCache : public Why {
 protected:
  using Why::compile;
  void bake() {
    ASSERT_EQ(::chmod(path("").c_str(), 0711), 0);
    const std::filesystem::path baked = cache();
    for (const auto& directory : {baked, baked / "v1"})
      std::filesystem::permissions(directory, std::filesystem::perms(0755));
    std::filesystem::permissions(baked / "v1/data.mdb", std::filesystem::perms(0644));
    testing::make(home(), 0700, testing::kUser);
    for (const auto& file : std::filesystem::recursive_directory_iterator(path("templates")))
      std::filesystem::permissions(file, std::filesystem::perms(file.is_directory() ? 0755 : 0644));
    std::filesystem::permissions(path("templates"), std::filesystem::perms(0755));
  }
  std::string home() const { return path("theirs"); }
  /// `member` of the command's JSON as another user with a TMPDIR of its own.
  std::string as_them(const Arguments& arguments, const std::string& member) {
    return testing::as_user(testing::kUser, [&]() -> std::string {
      Environment env = environment();
      env["HOME"] = env["TMPDIR"] = home();
      const auto said = Running(home(), arguments, env).wait().json()[member];
      return said.is_string() ? said.get<std::string>() : said.dump();
    });
  }
  std::string compiled_by_them(const std::string& n) {
    return as_them({"compile", "edit", n, "--arch", "sm_90a", "--json"}, "outcome");
  }
  std::string why_by_them(const std::string& n) {
    return as_them({"why", "edit", n, "--arch", "sm_90a", "--json"}, "outcome");
  }
};

TEST_F(WhyOfAReadOnlyCache, LooksWhereACompileLooks) {
  KILN_NEEDS_ROOT();
  compile("N=1");
  bake();
  EXPECT_EQ(why_by_them("N=1"), "layer") << "as a compile would say of it";
  EXPECT_EQ(why_by_them("N=2"), "compile");
  const std::string stepped_down = home() + "/kiln-" + std::to_string(testing::kUser);
  EXPECT_FALSE(std::filesystem::exists(stepped_down)) << "why creates nothing";
  EXPECT_EQ(compiled_by_them("N=1"), "layer");
  EXPECT_EQ(compiled_by_them("N=2"), "compiled");
  EXPECT_EQ(compiled_by_them("N=2"), "disk");
  EXPECT_EQ(why_by_them("N=2"), "disk") << "in the place that the compile stepped down to";
  EXPECT_EQ(why_by_them("N=3"), "compile");
  EXPECT_EQ(as_them({"why", "edit", "N=3", "--arch", "sm_90a", "--json"}, "entries"), "2");
}

TEST_F(WhyOfAReadOnlyCache, APlanIsCoveredByBothPlaces) {
  KILN_NEEDS_ROOT();
  compile("N=1");
  bake();
  testing::as_user(testing::kUser, [&]() -> std::string {
    base::write_file(home() + "/plan.toml", "[[prewarm]]\ntemplate = \"edit\"\nN = [1, 2]\n");
    return {};
  });
  const Arguments check{"prewarm", home() + "/plan.toml", "--check", "--arch", "sm_90a", "--json"};
  const Arguments exported{"bundle", "export", home() + "/out.kb", home() + "/plan.toml", "--arch",
                           "sm_90a", "--json"};
  EXPECT_EQ(as_them(exported, "written"), "false");
  EXPECT_NE(as_them(check, "missing"), "0");
  ASSERT_EQ(compiled_by_them("N=2"), "compiled");
  EXPECT_EQ(as_them(check, "missing"), "0");
  EXPECT_EQ(as_them(exported, "entries"), "2");
}

TEST_F(WhyOfAReadOnlyCache, APrewarmCountsWhatItReadThereAsKept) {
  KILN_NEEDS_ROOT();
  compile("N=1");
  bake();
  testing::as_user(testing::kUser, [&]() -> std::string {
    base::write_file(home() + "/plan.toml", "[[prewarm]]\ntemplate = \"edit\"\nN = [1, 2]\n");
    return {};
  });
  const Arguments prewarm{"prewarm", home() + "/plan.toml", "--arch", "sm_90a", "--json"};
  EXPECT_EQ(as_them(prewarm, "evicted"), "0");
  EXPECT_EQ(as_them(prewarm, "compiled"), "0")
      << "one is read in root's cache, one was stored by the first run";
}

/// One specialisation by two other toolchains, in a separate store.
class WhyOfToolchains : public Why {
 protected:
  void SetUp() override {
    Why::SetUp();
    if (IsSkipped()) return;
    const std::string key = compile();
    for (const char* build : {"build-one", "build-two"}) {
      refill(key, [build](std::string& text) {
        const std::size_t at = text.find("\nnvrtc ") + 7, end = text.find('\n', at);
        ASSERT_NE(end, std::string::npos);
        text.replace(at, end - at, std::string("9:") + build);
      });
    }
    edited_ = {{"KILN_CACHE_DIR", path("edited")}};
    const auto listed = kiln({"ls", "--json"}, edited_).json();
    for (const auto& entry : listed["entries"]) keys_.push_back(entry["key"]);
    ASSERT_EQ(keys_.size(), 2u);
    ASSERT_EQ(keys_[0].substr(0, 32), keys_[1].substr(0, 32));
  }
  Finished why_of(const std::string& n, const Arguments& more) {
    Arguments all{"why", "edit", n, "--arch", "sm_90a"};
    all.insert(all.end(), more.begin(), more.end());
    return kiln(all, edited_);
  }
  Environment edited_;
  std::vector<std::string> keys_;
};

TEST_F(WhyOfToolchains, TheNearestIsNamedAsShowTakesIt) {
  const Finished r = why_of("N=2", {"--all", "2"});
  ASSERT_EQ(r.status, 3) << r.err;
  for (const std::string& key : keys_) {
    const std::string name = key.substr(0, 12) + '-' + key.substr(32, 4);
    EXPECT_NE(r.out.find(name), std::string::npos) << r.out;
    EXPECT_EQ(kiln({"show", name, "--json"}, edited_).json()["key"], key);
  }
}

TEST_F(WhyOfToolchains, OneIsPickedByItsFirstDigits) {
  for (const std::string& key : keys_) {
    const Arguments pick{"--toolchain", key.substr(32, 8), "--json"};
    const auto hit = why_of("N=1", pick).json();
    EXPECT_EQ(hit["outcome"], "foreign_toolchain") << "as with KILN_TOOLCHAIN";
    EXPECT_EQ(hit["entry"]["key"], key);
    const auto miss = why_of("N=2", pick).json();
    EXPECT_EQ(miss["outcome"], "compile");
    ASSERT_EQ(miss["nearest"].size(), 1u);
    EXPECT_EQ(miss["nearest"][0]["key"], key);
  }
  const Finished none = why_of("N=2", {"--toolchain", "0123456789"});
  EXPECT_EQ(none.status, 3) << none.err;
  EXPECT_NE(none.out.find("by toolchain '0123456789'"), std::string::npos) << none.out;
  EXPECT_EQ(why_of("N=2", {"--toolchain", "own"}).status, 2);
}

TEST_F(WhyOfToolchains, DiffNamesItsSidesAsShowTakesThem) {
  ASSERT_EQ(kiln({"compile", "edit", "N=9", "--arch", "sm_90a"}, edited_).status, 0);
  const auto listed = kiln({"ls", "--json"}, edited_).json();
  for (const auto& entry : listed["entries"]) {
    if (entry["params"]["N"] != "9") continue;
    const Finished r = kiln({"diff", keys_[0], entry["key"]}, edited_);
    const std::string name = keys_[0].substr(0, 12) + '-' + keys_[0].substr(32, 4);
    EXPECT_NE(r.out.find(name), std::string::npos) << r.out << "not only what tells the two apart";
    EXPECT_EQ(kiln({"show", name}, edited_).status, 0);
  }
}

class Diff : public Why {};

TEST_F(Diff, NamesFieldsAndResources) {
  const std::string a = compile("N=1"), b = compile("N=2");
  const Finished r = kiln({"diff", a.substr(0, 12), b.substr(0, 12)});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("N is 1 in the first and 2 in the second"), std::string::npos) << r.out;
  const auto json = kiln({"diff", a, b, "--json"}).json();
  EXPECT_EQ(json["first"]["key"], a);
  EXPECT_EQ(json["differs"][0]["field"], "parameter");
  EXPECT_TRUE(json["resources"]["registers"]["first"].is_number());
}

TEST_F(Diff, TheSameEntryTwiceIsTheSame) {
  const std::string key = compile();
  EXPECT_NE(kiln({"diff", key, key}).out.find("The keys are the same."), std::string::npos);
  EXPECT_EQ(kiln({"diff", key, key, "--json"}).json()["same_key"], true);
}

TEST_F(Diff, AnAbsentOneIsExitOneAndAnAmbiguousOneExitTwo) {
  const std::string key = compile();
  EXPECT_EQ(kiln({"diff", key, std::string(64, '0')}).status, 1);
  compile("N=2");
  EXPECT_EQ(kiln({"diff", key, ""}).status, 2);
  EXPECT_EQ(kiln({"diff", key, "xyz"}).status, 2);
}

}  // namespace
}  // namespace kiln::test
