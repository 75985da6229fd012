// kiln doctor.
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "base/file.hpp"
#include "support/places.hpp"
#include "tests/support/other_user.hpp"
#include "tools/store_command.hpp"

namespace kiln::test {
namespace {

nlohmann::json finding(const nlohmann::json& json, const std::string& name, const std::string& status = {}) {
  for (const auto& f : json["findings"]) {
    if (f["name"] == name && (status.empty() || f["status"] == status)) return f;
  }
  ADD_FAILURE() << "no finding " << name << ' ' << status << " in " << json.dump(2);
  return {};
}

class Doctor : public KilnCompiler {};

TEST_F(Doctor, FindsNoErrorWhereEverythingWorks) {
  const Finished r = kiln({"doctor", "--json"});
  EXPECT_EQ(r.status, 0) << r.out;
  const auto json = r.json();
  EXPECT_EQ(json["schema"], "kiln.doctor/1");
  EXPECT_EQ(json["ok"], true);
  for (const char* name : {"nvrtc", "builtins", "worker", "compile", "versions", "templates", "directory",
                           "store", "gate", "clock", "/dev/shm", "temporary"}) {
    EXPECT_EQ(finding(json, name)["status"], "ok") << name;
  }
  finding(json, "driver");
  finding(json, "filesystem");
  finding(json, "machine");
}

TEST_F(Doctor, LeavesTheCacheAsItWas) {
  struct stat st {};
  kiln({"doctor"});
  EXPECT_NE(::stat(cache().c_str(), &st), 0) << "made by doctor";
  kiln({"compile", "scale", "N=1"});
  kiln({"doctor"});
  EXPECT_EQ(kiln({"ls", "--json"}).json()["count"], 1);
}

TEST_F(Doctor, OneLineForEachProbeAndNoEscapeCodes) {
  const Finished r = kiln({"doctor"});
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.out.rfind("ok       nvrtc       ", 0), 0u) << r.out;
  EXPECT_NE(r.out.find("cache_dir"), std::string::npos);
  EXPECT_EQ(r.out.find("compile_deadline"), std::string::npos);
  EXPECT_EQ(r.out.find('\033'), std::string::npos);
  EXPECT_NE(kiln({"doctor", "--verbose"}).out.find("compile_deadline"), std::string::npos);
}

TEST_F(Doctor, ModeSealedIsNoError) {
  const Finished r = kiln({"doctor", "--json"}, {{"KILN_MODE", "sealed"}});
  EXPECT_EQ(r.status, 0) << r.out;
  const auto json = r.json();
  EXPECT_EQ(json["errors"], 0);
  const auto f = finding(json, "compile");
  EXPECT_EQ(f["status"], "note");
  EXPECT_EQ(f["text"], "not tried: mode sealed (from KILN_MODE) does not compile");
}

TEST_F(Doctor, LoadsWhatItCompiledWhereThereIsADevice) {
  const auto json = kiln({"doctor", "--json"}, {{"KILN_LIBCUDA", places::kFakeCuda}}).json();
  EXPECT_EQ(finding(json, "driver")["status"], "ok");
  EXPECT_EQ(finding(json, "gpu")["status"], "ok");
  EXPECT_EQ(finding(json, "load")["status"], "ok");
  EXPECT_EQ(finding(json, "launch")["status"], "ok");
}

TEST_F(Doctor, TheArchIsTheDevicesUnlessItIsGiven) {
  const Environment device{{"KILN_LIBCUDA", places::kFakeCuda}};
  const Finished other = kiln({"doctor", "--json", "--arch", "sm_80"}, device);
  EXPECT_EQ(finding(other.json(), "load")["status"], "note");
  EXPECT_EQ(other.status, 0);
}

TEST_F(Doctor, HeadersOfAnotherVersionThanTheCompilerAreAWarning) {
  const auto nvrtc = finding(kiln({"doctor", "--json"}).json(), "nvrtc")["text"].get<std::string>();
  const std::string library = nvrtc.substr(0, nvrtc.find(" ("));
  std::filesystem::create_directories(path("cuda/include"));
  std::filesystem::create_directory_symlink(base::directory_of(library), path("cuda/lib64"));
  write("cuda/include/cuda_runtime_api.h", "#define CUDART_VERSION 12040\n");
  write("cuda/include/cuda_fp16.h", "");
  const Finished r = kiln({"doctor", "--json"}, {{"KILN_CUDA_HOME", path("cuda")}});
  const auto f = finding(r.json(), "versions");
  EXPECT_EQ(f["status"], "warning");
  EXPECT_NE(f["text"].get<std::string>().find("is of CUDA 12.4, but NVRTC is of CUDA"), std::string::npos)
      << f;
  EXPECT_EQ(r.status, 0);
}

/// A copy of the machine's compiler, whose libraries a test may change.
class CopiedCompiler : public KilnCompiler {
 protected:
  void SetUp() override {
    KilnCompiler::SetUp();
    if (IsSkipped()) return;
    std::filesystem::create_directories(path("cuda/lib64"));
    const auto json = kiln({"doctor", "--json"}).json();
    for (const char* name : {"nvrtc", "builtins"}) {
      const std::string text = finding(json, name)["text"], from = text.substr(0, text.find(" ("));
      const std::string to = path("cuda/lib64" + from.substr(from.rfind('/')));
      std::filesystem::copy_file(from, to);
      // kiln finds NVRTC by its major version, and a toolkit's file may have a longer name.
      const std::string found_by = to.substr(0, to.find('.', to.find(".so.") + 4));
      if (std::string(name) == "nvrtc" && found_by != to) std::filesystem::create_symlink(to, found_by);
      (std::string(name) == "nvrtc" ? nvrtc_ : builtins_) = to;
    }
  }
  /// Makes the build-id's note one that no tool knows, so that the library has none.
  static void take_build_id_from(const std::string& library) {
    std::string bytes = base::read_file(library)->bytes;
    const std::string note("\x03\0\0\0GNU\0", 8);  // NT_GNU_BUILD_ID and the name
    const std::size_t at = bytes.find(note);
    ASSERT_NE(at, std::string::npos) << library;
    bytes[at] = '\x7f';
    base::write_file(library, bytes);
  }

  std::string nvrtc_, builtins_;
  const Environment environment_{{"KILN_CUDA_HOME", path("cuda")}};
};

TEST_F(CopiedCompiler, KernelsAreCachedWhereTheBuiltinsHaveNoBuildId) {
  take_build_id_from(builtins_);
  const auto json = kiln({"doctor", "--json"}, environment_).json();
  EXPECT_NE(finding(json, "nvrtc", "ok")["text"].get<std::string>().find("(build-id "), std::string::npos);
  EXPECT_NE(finding(json, "builtins", "ok")["text"].get<std::string>().find("(digest "), std::string::npos);
  EXPECT_EQ(kiln({"compile", "scale", "N=1"}, environment_).status, 0);
  EXPECT_EQ(kiln({"ls", "--json"}).json()["count"], 1);
  EXPECT_EQ(kiln({"why", "scale", "N=1"}, environment_).status, 0) << "a hit";
  std::filesystem::resize_file(builtins_, std::filesystem::file_size(builtins_) + 1);
  const Finished r = kiln({"why", "scale", "N=1"}, environment_);
  EXPECT_EQ(r.status, 3) << "a miss";
  EXPECT_NE(r.out.find("NVRTC's builtins library is digest "), std::string::npos) << r.out;
}

TEST_F(CopiedCompiler, ALibraryThatCannotBeIdentifiedIsAWarning) {
  base::write_file(builtins_, "#!/bin/sh\n");
  const auto f = finding(kiln({"doctor", "--json"}, environment_).json(), "builtins", "warning");
  const std::string text = f["text"];
  EXPECT_NE(text.find("(no identity)"), std::string::npos) << text;
  EXPECT_NE(text.find("no kernel is cached"), std::string::npos) << text;
  EXPECT_FALSE(f["fix"].get<std::string>().empty());
}

using SickMachine = KilnCommand;

TEST_F(SickMachine, ASettingThatNobodyKnowsIsAWarningWithTheNearestName) {
  const auto json = kiln({"doctor", "--json"}, {{"KILN_CACHE_DIRS", "/x"}}).json();
  const auto f = finding(json, "settings");
  EXPECT_EQ(f["status"], "warning");
  EXPECT_NE(f["text"].get<std::string>().find("did you mean 'KILN_CACHE_DIR'"), std::string::npos) << f;
}

TEST_F(SickMachine, ASettingThatCannotBeRightIsAnErrorAndProbesGoOn) {
  ::mkdir(path("config").c_str(), 0700);
  ::mkdir(path("config/kiln").c_str(), 0700);
  write("config/kiln/config.toml", "jobs = [");
  const std::pair<Environment, const char*> cases[] = {
      {{{"KILN_MODE", "foo"}}, "'foo' (from KILN_MODE)"},
      {{{"KILN_JOBS", "many"}}, "KILN_JOBS"},
      {{{"XDG_CONFIG_HOME", path("config")}}, "config.toml:"}};
  for (const auto& [environment, said] : cases) {
    const Finished r = kiln({"doctor", "--json"}, environment);
    EXPECT_EQ(r.status, 1) << said;
    const auto json = r.json();
    EXPECT_EQ(json["ok"], false);
    const auto f = finding(json, "settings", "error");
    EXPECT_NE(f["text"].get<std::string>().find(said), std::string::npos) << f;
    EXPECT_EQ(f["fix"], "correct or remove it");
    for (const char* name : {"driver", "/dev/shm", "temporary"}) finding(json, name);
    EXPECT_EQ(kiln({"doctor"}, environment).out.rfind("error    settings    ", 0), 0u);
  }
}

TEST_F(SickMachine, MemoryForLessThanOneCompileIsAWarning) {
  const auto json = kiln({"doctor", "--json"}, {{"KILN_COMPILE_MEMORY", "100M"}}).json();
  const auto f = finding(json, "machine");
  EXPECT_EQ(f["status"], "warning");
  EXPECT_EQ(f["fix"], "raise KILN_COMPILE_MEMORY");
}

TEST_F(SickMachine, WithoutACompilerIsAnErrorWithARemedy) {
  const Finished r = kiln({"doctor", "--json"}, {{"KILN_CUDA_HOME", "/nonexistent/cuda"}});
  EXPECT_EQ(r.status, 1);
  const auto f = finding(r.json(), "nvrtc");
  EXPECT_EQ(f["status"], "error");
  EXPECT_NE(f["text"].get<std::string>().find("/nonexistent/cuda"), std::string::npos);
  EXPECT_TRUE(f["fix"].is_string());
}

TEST_F(SickMachine, ABrokenManifestIsAnError) {
  write("templates/broken.toml", "format = ");
  const Finished r = kiln({"doctor", "--json"});
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(finding(r.json(), "templates", "error")["text"].get<std::string>().find("broken.toml"),
            std::string::npos);
}

TEST_F(SickMachine, AnUnusableDirectoryIsAStepDown) {
  write("file", "in the way");
  const Finished r = kiln({"doctor", "--json", "--cache-dir", path("file")});
  const auto json = r.json();
  EXPECT_NE(finding(json, "directory", "warning")["text"].get<std::string>().find(path("file")),
            std::string::npos);
  finding(json, "directory", "ok");
}

TEST_F(SickMachine, NoHomeIsAStepDown) {
  for (const char* home : {"", "not/absolute"}) {
    const Finished r = kiln({"doctor", "--json"}, {{"HOME", home}, {"KILN_CACHE_DIR", ""}});
    const auto f = finding(r.json(), "directory", "warning");
    const auto text = f["text"].get<std::string>();
    EXPECT_NE(text.find("HOME"), std::string::npos) << f;
    EXPECT_NE(text.find(path("kiln-" + std::to_string(::geteuid()))), std::string::npos) << f;
    EXPECT_EQ(f["fix"], "set KILN_CACHE_DIR");
    finding(r.json(), "directory", "ok");
  }
}

TEST_F(SickMachine, AMissingTemplateDirectoryIsAWarning) {
  const auto json = kiln({"doctor", "--json", "--template-path", path("nowhere")}).json();
  EXPECT_NE(finding(json, "templates", "warning")["text"].get<std::string>().find("nowhere"),
            std::string::npos);
}

TEST_F(SickMachine, AWorkerThatDoesNotAnswerIsAnError) {
  const auto json = kiln({"doctor", "--json"}, {{"KILN_WORKER", "/bin/false"}}).json();
  EXPECT_EQ(finding(json, "worker")["status"], "error");
}

TEST_F(SickMachine, AWorkerThatCannotBeStartedHidesNoOtherProbe) {
  const Finished r = kiln({"doctor", "--json"}, {{"KILN_WORKER", "/nonexistent/worker"}});
  EXPECT_EQ(r.status, 1);
  const auto f = finding(r.json(), "worker");
  EXPECT_EQ(f["status"], "error");
  EXPECT_NE(f["text"].get<std::string>().find("/nonexistent/worker"), std::string::npos) << f;
  EXPECT_EQ(f["fix"], "set KILN_WORKER to kiln's worker, or unset it");
  finding(r.json(), "driver");
}

TEST_F(SickMachine, AFullDevShmIsAWarning) {
  const std::string said = kiln::testing::as_user(0, [&]() -> std::string {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("kiln", "/dev/shm", "tmpfs", 0, "size=4k") != 0)
      return "";
    base::write_file("/dev/shm/full", std::string(4096, 'x'));
    return kiln({"doctor", "--json"}).out;
  });
  if (said.empty()) GTEST_SKIP() << "a tmpfs cannot be mounted here";
  const auto f = finding(nlohmann::json::parse(said), "/dev/shm");
  EXPECT_EQ(f["status"], "warning") << f;
  EXPECT_NE(f["text"].get<std::string>().find("full"), std::string::npos) << f;
  EXPECT_EQ(f["fix"], "free space on /dev/shm");
}

TEST_F(SickMachine, SettingsSayWhereTheyComeFrom) {
  const auto json =
      kiln({"doctor", "--json", "--template-path", path("templates")}, {{"KILN_JOBS", "3"}}).json();
  std::map<std::string, std::string> origins;
  for (const auto& setting : json["settings"]) origins[setting["name"]] = setting["origin"];
  EXPECT_EQ(origins["jobs"], "KILN_JOBS");
  EXPECT_EQ(origins["template_path"], "option");
  EXPECT_EQ(origins["mode"], "default");
}

class SickStore : public StoreCommand {
 protected:
  /// The status of doctor's finding about entries; empty when there is none.
  std::string status_of_entries() {
    const auto json = kiln({"doctor", "--json"}).json();
    for (const auto& f : json["findings"])
      if (f["name"] == "entries") return f["status"];
    return {};
  }
};

TEST_F(SickStore, DamagedEntriesAreAWarningWithTheirNumber) {
  fill(20);
  EXPECT_EQ(status_of_entries(), "");
  damage_head(3);
  damage_head(7);
  const auto f = finding(kiln({"doctor", "--json"}).json(), "entries");
  EXPECT_EQ(f["status"], "warning");
  EXPECT_EQ(f["text"], "2 entries are damaged");
  EXPECT_NE(f["fix"].get<std::string>().find("kiln verify"), std::string::npos) << f;
  EXPECT_EQ(kiln({"doctor"}).out.find("Everything works"), std::string::npos);
  EXPECT_EQ(kiln({"gc"}).status, 0);
  EXPECT_EQ(status_of_entries(), "") << "what doctor advises mends it";
}

TEST_F(SickStore, WithoutACompilerWhatIsCachedOrInALayerIsServedAndThatIsAWarning) {
  const std::string layer = path("layer");
  fill(1, layer);
  open(path("empty"));
  const auto nvrtc = [&](const std::string& layers, int status) {
    const Finished r =
        kiln({"doctor", "--json"}, {{"KILN_CUDA_HOME", "/nonexistent/cuda"}, {"KILN_CACHE_LAYERS", layers}});
    EXPECT_EQ(r.status, status) << r.out;
    return finding(r.json(), "nvrtc");
  };
  const auto f = nvrtc(layer, 0);
  EXPECT_EQ(f["status"], "warning");
  EXPECT_NE(
      f["text"].get<std::string>().find("no compiler: cached kernels are served, and a miss is an error"),
      std::string::npos)
      << f;
  EXPECT_TRUE(f["fix"].is_string());
  EXPECT_EQ(nvrtc(path("empty"), 1)["status"], "error") << "it serves nothing";
  EXPECT_EQ(nvrtc(path("nowhere"), 1)["status"], "error") << "it serves nothing";
  fill(1);
  EXPECT_EQ(nvrtc("", 0)["status"], "warning");
}

TEST_F(SickStore, ALayerThatIsNotUsedHasTheRemedyForItsCause) {
  const std::string layer = path("layer");
  fill(1, layer);
  const auto warning = [&](const std::string& directory) {
    return finding(kiln({"doctor", "--json"}, {{"KILN_CACHE_LAYERS", directory}}).json(), "layer", "warning");
  };
  ASSERT_EQ(::chmod(layer.c_str(), 0777), 0);
  const auto open = warning(layer);
  EXPECT_EQ(open["text"], "layer '" + layer + "' is not used: '" + layer +
                              "': others may write it (mode 0777); chmod go-w it");
  EXPECT_EQ(open["fix"], "correct that, or take the layer out of KILN_CACHE_LAYERS");
  ASSERT_EQ(::chmod(layer.c_str(), 0755), 0);
  write("layer/v1/data.mdb", std::string(10000, 'g'));
  EXPECT_NE(warning(layer)["fix"].get<std::string>().find("write it again"), std::string::npos);
}

TEST_F(SickStore, AFileThatIsDamagedAsAWholeIsAnErrorAndTheOtherProbesGoOn) {
  fill(1);
  overwrite(std::string(8192, 'x'));
  const Finished r = kiln({"doctor", "--json"});
  EXPECT_EQ(r.status, 1);
  const auto f = finding(r.json(), "entries", "error");
  EXPECT_TRUE(f["fix"].is_string());
  for (const char* name : {"store", "gate", "temporary"}) EXPECT_EQ(finding(r.json(), name)["status"], "ok");
  EXPECT_EQ(kiln({"gc"}).status, 0);
  EXPECT_EQ(status_of_entries(), "") << "what doctor advises mends it";
}

}  // namespace
}  // namespace kiln::test
