// kiln caches capture, restore and why.
#include "tools/caches/fixture.hpp"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <thread>

#include "support/time_limit.hpp"

using namespace kiln;
using namespace kiln::test;

namespace fs = std::filesystem;

namespace {

struct CachedDirectory : CachesCommand {
  void SetUp() override {
    CachesCommand::SetUp();
    write_old("jit/a/kernel.cubin", "cubin of a");
    write_old("jit/b/kernel.cubin", "cubin of b");
    write_old("jit/b/copy.cubin", "cubin of a");
    fs::create_symlink("../a/kernel.cubin", path("jit/b/link"));
    fs::create_directory(path("jit/empty"));
    fs::permissions(path("jit/a/kernel.cubin"), fs::perms(0755));
  }
  void add_profile(const std::string& name, const std::string& more) const {
    fs::create_directories(path("profiles"));
    write("profiles/" + name + ".toml", "summary = 'one'\n[[directory]]\nvariable = 'ONE_DIR'\n" + more);
  }
  Environment with_profiles() const {
    return {{"KILN_CACHES_PROFILES", path("profiles")}, {"ONE_DIR", path("jit")}};
  }
};

}  // namespace

TEST_F(CachedDirectory, ARestoreWritesWhatACaptureRead) {
  auto captured = capture({path("jit"), "--name", "j"});
  EXPECT_EQ(captured["files"], 3);
  EXPECT_EQ(captured["stored"], 2) << "two files have the same bytes";
  EXPECT_EQ(captured["changed"], true);
  auto restored = restore({"j", "--to", path("new/place")});
  EXPECT_EQ(restored["found"], true);
  EXPECT_EQ(restored["written"], 3);
  EXPECT_EQ(text_of("new/place/a/kernel.cubin"), "cubin of a");
  EXPECT_EQ(text_of("new/place/b/kernel.cubin"), "cubin of b");
  EXPECT_EQ(text_of("new/place/b/copy.cubin"), "cubin of a");
  EXPECT_EQ(fs::read_symlink(path("new/place/b/link")), "../a/kernel.cubin");
  EXPECT_TRUE(fs::is_directory(path("new/place/empty")));
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat(path("jit/a/kernel.cubin").c_str(), &before), 0);
  ASSERT_EQ(::stat(path("new/place/a/kernel.cubin").c_str(), &after), 0);
  EXPECT_EQ(after.st_mtim.tv_sec, before.st_mtim.tv_sec);
  EXPECT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
  EXPECT_TRUE(after.st_mode & S_IXUSR);
  expect_no_staging(path("new"));
  auto again = restore({"j", "--to", path("new/place")});
  EXPECT_EQ(again["written"], 0);
  EXPECT_EQ(again["equal"], 3);
}

TEST_F(CachedDirectory, ASecondCaptureReadsOnlyWhatChanged) {
  capture({path("jit")});
  EXPECT_EQ(capture({path("jit")})["read"], 0);
  EXPECT_EQ(capture({path("jit")})["changed"], false);
  EXPECT_EQ(capture({path("jit"), "--full"})["read"], 3);
  write_old("jit/b/kernel.cubin", "cubin of B", 1'700'000'001);
  auto changed = capture({path("jit")});
  EXPECT_EQ(changed["read"], 1);
  EXPECT_EQ(changed["stored"], 1);
  EXPECT_EQ(changed["changed"], true);
  EXPECT_EQ(restore({path("jit")})["equal"], 3);
}

TEST_F(CachedDirectory, AFreshFileIsReadAgain) {
  write("jit/fresh", "one");
  capture({path("jit")});
  auto second = capture({path("jit")});
  EXPECT_EQ(second["read"], 1) << "its size and time do not prove that it is the same";
  EXPECT_EQ(second["stored"], 0);
}

TEST_F(CachedDirectory, AClearedFileIsStoredAgain) {
  capture({path("jit")});
  ASSERT_EQ(kiln({"caches", "clear", "files"}).status, 0);
  auto restored = restore({path("jit")});
  EXPECT_EQ(restored["found"], true) << "every file is there";
  fs::remove(path("jit/a/kernel.cubin"));
  auto miss = restore({path("jit")});
  EXPECT_EQ(miss["found"], false);
  EXPECT_NE(miss["reason"].get<std::string>().find("'a/kernel.cubin'"), std::string::npos) << miss;
  EXPECT_EQ(kiln({"caches", "why", path("jit"), "--json"}).json()["missing"], 3);
  EXPECT_EQ(capture({path("jit")})["read"], 2);
  EXPECT_EQ(restore({path("jit")})["equal"], 2);
}

TEST_F(CachedDirectory, AMissingFileMeansThatNothingIsWritten) {
  capture({path("jit"), "--name", "j"});
  ASSERT_EQ(kiln({"caches", "clear", "files"}).status, 0);
  put({"files", "kiln-files 1", base::digest_of(std::string_view("cubin of b")).hex()}, "cubin of b");
  EXPECT_EQ(restore({"j", "--to", path("place")})["found"], false);
  EXPECT_FALSE(fs::exists(path("place")));
  fs::create_directory(path("there"));
  EXPECT_EQ(restore({"j", "--to", path("there")})["found"], false);
  EXPECT_TRUE(fs::is_empty(path("there")));
}

TEST_F(CachedDirectory, OtherBytesUnderADigestAreAMiss) {
  capture({path("jit"), "--name", "j"});
  put({"files", "kiln-files 1", base::digest_of(std::string_view("cubin of a")).hex()}, "cubin of X");
  auto miss = restore({"j", "--to", path("place")});
  EXPECT_EQ(miss["found"], false);
  EXPECT_FALSE(fs::exists(path("place")));
}

TEST_F(CachedDirectory, AFullCaptureStoresADamagedFileAgain) {
  const Arguments jit = {path("jit"), "--name", "j"}, full = {path("jit"), "--name", "j", "--full"};
  capture(jit);
  put({"files", "kiln-files 1", base::digest_of(std::string_view("cubin of a")).hex()}, "cubin of X");
  auto miss = restore({"j", "--to", path("place")});
  EXPECT_NE(miss["reason"].get<std::string>().find("capture DIR --name j --full"), std::string::npos) << miss;
  EXPECT_EQ(capture(jit)["stored"], 0) << "it is listed";
  EXPECT_EQ(capture(full)["stored"], 1);
  EXPECT_EQ(capture(full)["stored"], 0);
  EXPECT_EQ(restore({"j", "--to", path("place")})["written"], 3);
}

TEST_F(CachedDirectory, ADirectoryWithTheNameOfAStagingDirectoryIsTheUsers) {
  write_old("jit/.kiln-restore-notes-of-mine/f", "mine");
  write_old("jit/.kiln-restore-abcdef/f", "mine");
  write_old("jit/.kiln-restore-ABCDEF/.kiln-staging", "");
  write_old("jit/.kiln-restore-ABCDEF/tree/f", "left by a restore that was killed");
  EXPECT_EQ(capture({path("jit")})["files"], 5);
  fs::remove(path("jit/b/kernel.cubin"));
  EXPECT_EQ(restore({path("jit")})["written"], 1);
  EXPECT_EQ(text_of("jit/.kiln-restore-notes-of-mine/f"), "mine");
  EXPECT_EQ(text_of("jit/.kiln-restore-abcdef/f"), "mine");
  EXPECT_FALSE(fs::exists(path("jit/.kiln-restore-ABCDEF")));
}

TEST_F(CachedDirectory, AFileFromBefore1970IsRestored) {
  write_old("jit/old", "old", -5);
  capture({path("jit"), "--name", "j"});
  EXPECT_EQ(restore({"j", "--to", path("place")})["written"], 4);
  EXPECT_EQ(fs::last_write_time(path("place/old")), fs::last_write_time(path("jit/old")));
}

TEST_F(CachedDirectory, AFileThatDiffersStaysWithoutForce) {
  capture({path("jit")});
  write_old("jit/a/kernel.cubin", "newer one!", 1'800'000'000);
  fs::remove(path("jit/b/kernel.cubin"));
  auto kept = restore({path("jit")});
  EXPECT_EQ(kept["written"], 1);
  EXPECT_EQ(kept["kept"], 1);
  EXPECT_EQ(text_of("jit/a/kernel.cubin"), "newer one!");
  EXPECT_EQ(restore({path("jit"), "--force"})["written"], 1);
  EXPECT_EQ(text_of("jit/a/kernel.cubin"), "cubin of a");
  expect_no_staging(path("jit"));
}

TEST_F(CachedDirectory, AFileWithAnotherTimeAndTheSameBytesIsEqual) {
  capture({path("jit")});
  write_old("jit/b/kernel.cubin", "cubin of b", 1'800'000'000);
  EXPECT_EQ(restore({path("jit")})["equal"], 3);
  write_old("jit/b/kernel.cubin", "cubin of Z");
  EXPECT_EQ(restore({path("jit")})["equal"], 3) << "size and time are equal";
  EXPECT_EQ(restore({path("jit"), "--full"})["kept"], 1);
}

TEST_F(CachedDirectory, EntriesThatLeaveTheDirectoryAreLeftOut) {
  fs::create_symlink("/etc/passwd", path("jit/absolute"));
  fs::create_symlink("../../outside", path("jit/a/above"));
  fs::create_symlink("a/../../outside", path("jit/through"));
  ASSERT_EQ(::mkfifo(path("jit/fifo").c_str(), 0600), 0);
  auto captured = capture({path("jit")});
  EXPECT_EQ(captured["skipped"], 4) << captured;
  EXPECT_EQ(captured["files"], 3);
}

TEST_F(CachedDirectory, AProfileChoosesFilesAndFacts) {
  add_profile("one",
              "[files]\nexclude = ['b/**', 'empty']\nembeds_paths = true\n"
              "[depends]\ndistributions = ['Some_Thing']\nfacts = ['gpu']\n");
  fs::create_directories(path("venv/bin"));
  write("venv/bin/python", "");
  fs::permissions(path("venv/bin/python"), fs::perms(0755));
  write("venv/pyvenv.cfg", "home = /usr/bin\nversion = 3.12.4\n");
  fs::create_directories(path("venv/lib/python3.12/site-packages/some_thing-1.2.3.dist-info"));
  Environment environment = with_profiles();
  environment["VIRTUAL_ENV"] = path("venv");
  auto captured = capture({"one", "--arch", "90"}, environment);
  EXPECT_EQ(captured["space"], "dir.one");
  EXPECT_EQ(captured["files"], 1);
  EXPECT_EQ(captured["compatibility"],
            nlohmann::json({"gpu sm_90a", "dist.Some_Thing 1.2.3", "root " + path("jit")}));
  EXPECT_EQ(restore({"one", "--arch", "90"}, environment)["equal"], 1);

  EXPECT_EQ(restore({"one", "--arch", "100"}, environment)["found"], false);
  const Finished why = kiln({"caches", "why", "one", "--arch", "100", "--json"}, environment);
  EXPECT_EQ(why.status, 3);
  auto differences = why.json()["nearest"]["differences"];
  ASSERT_EQ(differences.size(), 1u) << differences;
  EXPECT_EQ(differences[0]["fact"], "gpu");
  EXPECT_EQ(differences[0]["recorded"], "sm_90a");
  EXPECT_EQ(differences[0]["now"], "sm_100a");
  EXPECT_EQ(kiln({"caches", "why", "one", "--arch", "90"}, environment).status, 0);
  EXPECT_EQ(restore({"one", "--arch", "90", "--to", path("other")}, environment)["found"], false)
      << "its files name the directory";
}

TEST_F(CachedDirectory, AnotherVersionOfADistributionIsAMiss) {
  add_profile("one", "[depends]\ndistributions = ['thing']\n");
  fs::create_directories(path("venv/bin"));
  write("venv/bin/python", "");
  fs::permissions(path("venv/bin/python"), fs::perms(0755));
  write("venv/pyvenv.cfg", "version = 3.12.4\n");
  const std::string site = path("venv/lib/python3.12/site-packages/");
  fs::create_directories(site + "thing-1.dist-info");
  const Arguments one = {"one", "--python", path("venv/bin/python")};
  capture(one, with_profiles());
  EXPECT_EQ(restore(one, with_profiles())["found"], true);
  fs::rename(site + "thing-1.dist-info", site + "thing-2.dist-info");
  EXPECT_EQ(restore(one, with_profiles())["found"], false);
}

TEST_F(CachedDirectory, AnInterpreterThatIsAScriptIsAskedForItsVersion) {
  if (std::system("python3 -c '' 2>/dev/null") != 0) GTEST_SKIP() << "no python3 on this machine";
  add_profile("one", "[depends]\ndistributions = ['thing']\nfacts = ['python']\n");
  fs::create_directories(path("site/thing-1.2.dist-info"));
  const auto facts_with = [&](const std::string& script) {
    write("python3", "#!/bin/sh\n" + script + '\n');
    fs::permissions(path("python3"), fs::perms(0755));
    return restore({"one", "--python", path("python3")}, with_profiles())["compatibility"];
  };
  const auto facts =
      facts_with("echo an environment starts\nPYTHONPATH=" + path("site") + " exec python3 \"$@\"");
  const std::string version = facts[0];
  EXPECT_TRUE(std::regex_match(version, std::regex("python 3\\.[0-9]+"))) << version;
  EXPECT_EQ(facts[1], "dist.thing 1.2");
  for (const char* script : {"exit 1", "echo 3.12", "echo kiln-python"})
    EXPECT_EQ(facts_with(script), nlohmann::json({"python none", "dist.thing none"})) << script;
}

TEST_F(CachedDirectory, OnlyImmutableFilesBecomeHardLinks) {
  write_old("jit/b/other.cubin", "cubin of b", 1'700'000'007);
  const auto links = [&](const std::string& immutable, const Arguments& more) {
    fs::remove_all(path("jit2"));
    add_profile("one", "[files]\nimmutable = " + immutable + "\n");
    capture({"one"}, with_profiles());
    Arguments arguments = {"one", "--to", path("jit2")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(restore(arguments, with_profiles())["written"], 4);
    EXPECT_EQ(restore(arguments, with_profiles())["equal"], 4) << "though a link has the other file's time";
    EXPECT_EQ(text_of("jit2/b/other.cubin"), "cubin of b");
    return fs::hard_link_count(path("jit2/b/other.cubin"));
  };
  EXPECT_EQ(links("true", {}), 2u);
  EXPECT_EQ(links("true", {"--copy"}), 1u);
  EXPECT_EQ(links("false", {}), 1u);
}

TEST_F(CachedDirectory, AFileOfSeveralRecordsIsRestored) {
  const std::string large((std::size_t{64} << 20) + 9, 'x');
  write_old("jit/large", large);
  EXPECT_EQ(capture({path("jit"), "--name", "j"})["stored"], 3);
  EXPECT_EQ(capture({path("jit"), "--name", "j"})["read"], 0);
  EXPECT_EQ(restore({"j", "--to", path("place")})["written"], 4);
  EXPECT_TRUE(text_of("place/large") == large);
}

TEST_F(CachedDirectory, AStoreThatIsTooSmallIsAnError) {
  std::uint64_t state = 1;
  for (int i = 0; i < 60; ++i) {
    std::string noise(100'000, 0);
    for (char& c : noise)
      c = static_cast<char>((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
    write_old("jit/many/" + std::to_string(i), noise);
  }
  const Finished done = kiln({"caches", "capture", path("jit")}, {{"KILN_CACHE_MAX_SIZE", "4M"}});
  EXPECT_EQ(done.status, 1);
  EXPECT_NE(done.err.find("KILN_CACHE_MAX_SIZE"), std::string::npos) << done.err;
  EXPECT_EQ(kiln({"caches", "why", path("jit")}).status, 3) << "no record is left that cannot be restored";
}

TEST_F(CachedDirectory, AFileThatGrowsAllTheTimeIsWholeOrLeftOut) {
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    std::ofstream out(path("jit/growing"));
    while (!stop) out << std::string(4096, 'x') << std::flush;
  });
  const auto captured = capture({path("jit"), "--name", "j"});
  stop = true;
  writer.join();
  EXPECT_EQ(captured.at("files").get<int>() + captured.at("skipped").get<int>(), 4);
  EXPECT_EQ(restore({"j", "--to", path("place")})["written"], captured.at("files"));
}

TEST_F(CachedDirectory, AProfileThatIsWrongSaysWhere) {
  add_profile("one", "[depends]\nfacts = ['moon']\n");
  const Finished wrong = kiln({"caches", "capture", "one"}, with_profiles());
  EXPECT_EQ(wrong.status, 1);
  EXPECT_NE(wrong.err.find("one.toml:5"), std::string::npos) << wrong.err;
  EXPECT_NE(wrong.err.find("expected gpu, driver, cuda, host, python"), std::string::npos) << wrong.err;
  const Finished unknown = kiln({"caches", "capture", "flashinfor"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.err.find("did you mean 'flashinfer'"), std::string::npos) << unknown.err;
}

TEST_F(CachedDirectory, WhyOfASpaceListsItsCompatibilities) {
  put({"triton", "v1", "a"}, "1");
  put({"triton", "v1", "b"}, "2");
  put({"triton", "v2", "c"}, "3");
  auto json = kiln({"caches", "why", "triton", "--json"}).json();
  ASSERT_EQ(json["compatibilities"].size(), 2u) << json;
  EXPECT_EQ(json["compatibilities"][0]["blobs"], 2);
}

TEST_F(CachedDirectory, WhyOfAnUnknownDirectorySaysThatThereIsNoRecord) {
  const Finished why = kiln({"caches", "why", path("jit"), "--json"});
  EXPECT_EQ(why.status, 3);
  EXPECT_EQ(why.json()["nearest"], nullptr);
  EXPECT_FALSE(fs::exists(cache())) << "why creates no store";
}

TEST_F(CachedDirectory, ALayerRestores) {
  capture({path("jit"), "--name", "j"}, {{"KILN_CACHE_DIR", path("layer")}});
  const Environment layered = {{"KILN_CACHE_LAYERS", path("layer")}};
  EXPECT_EQ(kiln({"caches", "why", "j", "--to", path("place")}, layered).status, 0);
  EXPECT_EQ(restore({"j", "--to", path("place")}, layered)["written"], 3);
}

TEST_F(CachedDirectory, ASignedBundleRestores) {
  capture({path("jit"), "--name", "j"});
  ASSERT_EQ(kiln({"bundle", "keygen", path("k")}).status, 0);
  ASSERT_EQ(kiln({"bundle", "export", path("a.kb"), "--all-jits", "--sign", path("k.key")}).status, 0);
  const Environment other = {{"KILN_CACHE_DIR", path("other")}};
  ASSERT_EQ(kiln({"bundle", "import", path("a.kb"), "--require-signature", path("k.pub")}, other).status, 0);
  EXPECT_EQ(restore({"j", "--to", path("place")}, other)["written"], 3);
}

TEST_F(CachedDirectory, TwoCapturesAtOnceAgree) {
  for (int i = 0; i < 200; ++i) write_old("jit/many/" + std::to_string(i), "file " + std::to_string(i % 150));
  const auto one = start({"caches", "capture", path("jit"), "--name", "j"});
  const auto two = start({"caches", "capture", path("jit"), "--name", "j"});
  EXPECT_EQ(one->wait().status, 0);
  EXPECT_EQ(two->wait().status, 0);
  EXPECT_EQ(restore({"j", "--to", path("place")})["written"], 203);
  EXPECT_EQ(text_of("place/many/199"), "file 49");
}

TEST_F(CachedDirectory, TwoRestoresAtOnceAgree) {
  for (int i = 0; i < 200; ++i) write_old("jit/many/" + std::to_string(i), "file " + std::to_string(i));
  capture({path("jit"), "--name", "j"});
  const auto one = start({"caches", "restore", "j", "--to", path("place")});
  const auto two = start({"caches", "restore", "j", "--to", path("place")});
  EXPECT_EQ(one->wait().status, 0);
  EXPECT_EQ(two->wait().status, 0);
  auto again = restore({"j", "--to", path("place"), "--full"});
  EXPECT_EQ(again["equal"], 203);
  EXPECT_EQ(again["kept"], 0);
  expect_no_staging(scratch());
}

TEST_F(CachedDirectory, AKilledRestoreLeavesNoHalfFileAndTheNextMends) {
  const std::string large(200'000, 'x');
  for (int i = 0; i < 300; ++i) write_old("jit/many/" + std::to_string(i), large + std::to_string(i));
  capture({path("jit"), "--name", "j"});
  fs::create_directory(path("place"));
  const auto staged = [&] {
    for (const auto& entry : fs::directory_iterator(path("place")))
      if (entry.path().filename().string().starts_with(".kiln-restore-")) return true;
    return false;
  };
  const auto run = start({"caches", "restore", "j", "--to", path("place")});
  const auto deadline = base::Deadline::after(at_most(std::chrono::seconds(10)));
  while (!staged() && !fs::exists(path("place/many/0")) && !deadline.passed())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  run->send(SIGKILL);
  run->wait();
  for (int i = 0; i < 300; ++i) {
    const std::string name = "place/many/" + std::to_string(i);
    if (fs::exists(path(name))) {
      EXPECT_EQ(text_of(name), large + std::to_string(i));
    }
  }
  EXPECT_EQ(restore({"j", "--to", path("place")})["found"], true);
  EXPECT_EQ(restore({"j", "--to", path("place"), "--full"})["equal"], 303);
  expect_no_staging(path("place"));
}

TEST_F(CachedDirectory, AKilledCaptureIsMendedByTheNext) {
  for (int i = 0; i < 300; ++i)
    write_old("jit/many/" + std::to_string(i), std::string(100'000, 'x') + std::to_string(i));
  const auto run = start({"caches", "capture", path("jit"), "--name", "j"});
  const auto deadline = base::Deadline::after(at_most(std::chrono::seconds(10)));
  while (!fs::exists(data_file()) && !deadline.passed())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  run->send(SIGKILL);
  run->wait();
  capture({path("jit"), "--name", "j"});
  EXPECT_EQ(restore({"j", "--to", path("place")})["written"], 303);
}
