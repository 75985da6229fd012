// Places and layers through the kiln command. tests/support/fake_filesystem.cpp pretends filesystems that a
// test machine does not have. Layers are written like an image build writes them.
#include <sys/stat.h>

#include <algorithm>

#include "support/other_user.hpp"
#include "support/places.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

using testing::mode_of;

class PlacesCommand : public KilnCompiler {
 protected:
  void SetUp() override {
    KilnCompiler::SetUp();
    ::mkdir(path("tmp").c_str(), 0700);
    more_["TMPDIR"] = path("tmp");
  }
  void TearDown() override { testing::remove_shared_memory_of(path("")); }

  Finished run(const Arguments& arguments) { return kiln(arguments, more_); }
  /// From now on everything below `name` seems to be on a filesystem of this kind.
  void pretend(const std::string& name, const std::string& magic) {
    preload();
    more_["KILN_TEST_FILESYSTEM"] = path(name) + '=' + magic;
  }
  void pretend_without_locks(const std::string& name) {
    preload();
    more_["KILN_TEST_NO_LOCKS"] = path(name);
  }
  nlohmann::json compile(int n = 1) {
    const Finished r = run({"compile", "scale", "N=" + std::to_string(n), "--arch", "sm_90a", "--json"});
    EXPECT_EQ(r.status, 0) << r.err;
    err_ = r.err;
    return r.json();
  }
  /// The last compile must have printed one warning that contains all of `parts`.
  void expect_warning(const std::vector<std::string>& parts) const {
    EXPECT_EQ(std::count(err_.begin(), err_.end(), '\n'), 1) << err_;
    for (const std::string& part : parts)
      EXPECT_NE(err_.find(part), std::string::npos) << part << " in " << err_;
  }
  std::string stepped_down() const { return path("tmp/kiln-" + std::to_string(::geteuid())); }
  std::string plan(const std::string& numbers) {
    write("plan.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = [" + numbers + "]\n");
    return path("plan.toml");
  }
  std::vector<nlohmann::json> findings(const std::string& name) {
    std::vector<nlohmann::json> out;
    const nlohmann::json all = run({"doctor", "--json"}).json();
    for (const auto& f : all["findings"])
      if (f["name"] == name) out.push_back(f);
    return out;
  }

  Environment more_;
  std::string err_;

 private:
  void preload() {
    more_["LD_PRELOAD"] = places::kFakeFilesystem;
    more_["ASAN_OPTIONS"] = "verify_asan_link_order=0";
  }
};

TEST_F(PlacesCommand, ANetworkFilesystemIsSteppedDownFrom) {
  const std::pair<const char*, const char*> kinds[] = {
      {"0x6969", "nfs"},        {"0xFF534D42", "cifs"},   {"0xFE534D42", "smb2"},  {"0x01021997", "9p"},
      {"0x00C36400", "ceph"},   {"0x0BD00BD0", "lustre"}, {"0x47504653", "gpfs"},  {"0x5346414F", "afs"},
      {"0x19830326", "beegfs"}, {"0x65735546", "fuse"},   {"0x7461636F", "ocfs2"}, {"0x01161970", "gfs2"}};
  const char* expected = "compiled";
  ::mkdir(path("mount").c_str(), 0700);
  more_["KILN_CACHE_DIR"] = path("mount/cache");
  for (const auto& [magic, name] : kinds) {
    pretend("mount", magic);
    EXPECT_EQ(compile()["outcome"], expected) << name;
    expect_warning({path("mount/cache"), std::string("lies on ") + name + ", a network filesystem",
                    "caching in '" + stepped_down() + "' instead", "KILN_CACHE_DIR"});
    expected = "disk";
  }
  EXPECT_EQ(mode_of(path("mount/cache")), "absent") << "nothing is made there";
  const auto places = findings("directory");
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places[0]["status"], "warning");
  EXPECT_NE(places[0]["text"].get<std::string>().find("gfs2"), std::string::npos);
  EXPECT_EQ(places[1]["text"].get<std::string>().rfind(stepped_down(), 0), 0u);
  EXPECT_EQ(run({"stats", "--json"}).json()["directory"], stepped_down());
}

TEST_F(PlacesCommand, ALocalFilesystemOfAnUnknownKindIsUsed) {
  pretend("cache", "0x12345678");
  EXPECT_EQ(compile()["outcome"], "compiled");
  EXPECT_EQ(err_, "");
  EXPECT_EQ(compile()["outcome"], "disk");
  EXPECT_NE(findings("filesystem").at(0)["text"].get<std::string>().find("type 0x12345678"),
            std::string::npos);
}

TEST_F(PlacesCommand, AFilesystemWithoutLocksIsSteppedDownFrom) {
  pretend_without_locks("cache");
  for (const char* expected : {"compiled", "disk"}) {
    EXPECT_EQ(compile()["outcome"], expected);
    expect_warning({"no open-file-description locks", "caching in '" + stepped_down(), "KILN_CACHE_DIR"});
  }
}

TEST_F(PlacesCommand, NoPlaceAtAllIsMemoryOnlyAndOneWarning) {
  pretend("", "0x6969");
  more_["KILN_TEST_FILESYSTEM"] = path("tmp").substr(0, path("tmp").rfind('/')) + "=0x6969";
  more_["KILN_TEST_NO_LOCKS"] = "/var";
  const bool clean = mode_of("/var/tmp/kiln-" + std::to_string(::geteuid())) == "absent";
  EXPECT_EQ(compile()["outcome"], "compiled");
  expect_warning({"network filesystem", "no open-file-description locks", "nothing is cached on disk",
                  "set KILN_CACHE_DIR"});
  if (clean) std::filesystem::remove_all("/var/tmp/kiln-" + std::to_string(::geteuid()));
}

TEST_F(PlacesCommand, ALayerMayLieOnANetworkFilesystemWithLocks) {
  ASSERT_EQ(run({"prewarm", plan("1"), "--arch", "sm_90a", "--layer", path("layer")}).status, 0);
  more_["KILN_CACHE_LAYERS"] = path("layer");
  pretend("layer", "0x6969");
  EXPECT_EQ(compile()["outcome"], "layer");
  EXPECT_EQ(err_, "");
  pretend_without_locks("layer");
  EXPECT_EQ(compile()["outcome"], "compiled");
  expect_warning({path("layer"), "left out", "no open-file-description locks"});
}

TEST_F(PlacesCommand, PrewarmWritesALayerThatEverybodyCanRead) {
  const mode_t before = ::umask(077);
  const auto made =
      run({"prewarm", plan("1, 2"), "--arch", "sm_90a", "--layer", path("images/layer"), "--json"});
  ::umask(before);
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(made.json()["compiled"], 2);
  EXPECT_EQ(made.json()["directory"], path("images/layer"));
  EXPECT_EQ(mode_of(cache()), "absent") << "and nothing else is written";
  EXPECT_EQ(mode_of(path("images")), "0755");
  EXPECT_EQ(mode_of(path("images/layer")), "0755");
  EXPECT_EQ(mode_of(path("images/layer/v1")), "0755");
  EXPECT_EQ(mode_of(path("images/layer/v1/data.mdb")), "0644");
  for (const auto& entry : std::filesystem::directory_iterator(path("images/layer/v1")))
    EXPECT_EQ(entry.path().filename(), "data.mdb");

  more_["KILN_CACHE_LAYERS"] = path("images/layer");
  EXPECT_EQ(compile(1)["outcome"], "layer");
  EXPECT_EQ(compile(2)["outcome"], "layer");
  EXPECT_EQ(compile(3)["outcome"], "compiled");
  const auto check = run({"prewarm", plan("1, 2, 3"), "--arch", "sm_90a", "--check", "--json"}).json();
  EXPECT_EQ(check["covered"], 3) << "the layer's and the store's";
  const auto layers = findings("layer");
  ASSERT_EQ(layers.size(), 1u);
  EXPECT_EQ(layers[0]["status"], "ok");
  EXPECT_EQ(layers[0]["text"].get<std::string>().rfind(path("images/layer") + ", 2 entries", 0), 0u);
}

TEST_F(PlacesCommand, WhatTheCacheHoldsDoesNotMatterToALayer) {
  const Arguments arguments{"prewarm", plan("1"), "--arch", "sm_90a", "--json"};
  ASSERT_EQ(run(arguments).json()["compiled"], 1);
  Arguments into_layer = arguments;
  into_layer.insert(into_layer.end(), {"--layer", path("layer")});
  EXPECT_EQ(run(into_layer).json()["compiled"], 1);
  more_["KILN_CACHE_LAYERS"] = path("layer");
  Arguments into_other = arguments;
  into_other.insert(into_other.end(), {"--layer", path("other")});
  Arguments check = into_other;
  EXPECT_EQ(run(into_other).json()["compiled"], 1);
  EXPECT_EQ(run(into_other).json()["from_disk"], 1) << "resumable";
  check.push_back("--check");
  EXPECT_EQ(run(check).json()["covered"], 1);
}

TEST_F(PlacesCommand, ALayerThatCannotBeWrittenIsAnError) {
  write("file", "");
  ::mkdir(path("open").c_str(), 0777);
  ::chmod(path("open").c_str(), 0777);
  for (const char* name : {"file", "file/below", "open"}) {
    const Finished r = run({"prewarm", plan("1"), "--layer", path(name)});
    EXPECT_EQ(r.status, 1) << name;
    EXPECT_NE(r.err.find(path(name)), std::string::npos) << r.err;
  }
  EXPECT_EQ(run({"prewarm", plan("1"), "--layer", path("missing"), "--check"}).status, 1);
  EXPECT_EQ(mode_of(path("missing")), "absent");
  EXPECT_EQ(mode_of(cache()), "absent");
}

TEST_F(PlacesCommand, DoctorSaysWhatIsWrongWithALayerAndWhereAPrivateStoreIs) {
  ::mkdir(cache().c_str(), 0777);
  ::chmod(cache().c_str(), 0777);
  more_["KILN_CACHE_LAYERS"] = path("missing");
  const auto layers = findings("layer"), places = findings("directory");
  ASSERT_EQ(layers.size(), 1u);
  EXPECT_EQ(layers[0]["status"], "warning");
  EXPECT_NE(layers[0]["text"].get<std::string>().find(path("missing")), std::string::npos);
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places[0]["status"], "note");
  EXPECT_NE(places[1]["text"].get<std::string>().find(cache() + "/kiln-"), std::string::npos);
  EXPECT_EQ(compile()["outcome"], "compiled");
  EXPECT_EQ(run({"ls", "--json"}).json()["count"], 1) << "inspection finds the private store, too";
}

TEST_F(PlacesCommand, StatsShowWhatWasCountedOverTheStoresLifetime) {
  compile(1), compile(1), compile(2);
  const auto lifetime = run({"stats", "--json"}).json()["lifetime"];
  EXPECT_EQ(lifetime["compiles"], 2);
  EXPECT_EQ(lifetime["hits"]["disk"], 1);
  EXPECT_EQ(lifetime["misses"]["absent"], 2);
  EXPECT_EQ(lifetime["puts"]["stored"], 2);
  EXPECT_GT(lifetime["compile_ms"].get<double>(), 0);
  const std::string text = run({"stats"}).out;
  EXPECT_NE(text.find("1 disk"), std::string::npos) << text;
  EXPECT_NE(text.find("2 absent"), std::string::npos) << text;
}

TEST_F(PlacesCommand, AWrongSizeIsAUsageError) {
  more_["KILN_CACHE_MAX_SIZE"] = "5 parsecs";
  const Finished r = run({"stats"});
  EXPECT_EQ(r.status, 2);
  for (const char* part : {"5 parsecs", "KILN_CACHE_MAX_SIZE", "512M"})
    EXPECT_NE(r.err.find(part), std::string::npos) << r.err;
}

}  // namespace
}  // namespace kiln::test
