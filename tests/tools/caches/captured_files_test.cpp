// The files of captured directories: what a capture takes, with which modes a restore writes them, and what goes with
// a record that is cleared.
#include <fcntl.h>
#include <sys/stat.h>

#include "support/nightly.hpp"
#include "tools/caches/fixture.hpp"

using namespace kiln;
using namespace kiln::test;

namespace fs = std::filesystem;

namespace {

struct CapturedFiles : CachesCommand {
  void SetUp() override {
    CachesCommand::SetUp();
    write_old("jit/a/kernel.cubin", "cubin of a");
    write_old("jit/b/kernel.cubin", "cubin of b");
  }
  void add_profile(const std::string& name, const std::string& more) const {
    fs::create_directories(path("profiles"));
    write("profiles/" + name + ".toml", "summary = 'one'\n[[directory]]\nvariable = 'ONE_DIR'\n" + more);
  }
  Environment with_profiles() const {
    return {{"KILN_CACHES_PROFILES", path("profiles")}, {"ONE_DIR", path("jit")}};
  }
  /// How many files are in the store.
  int files() {
    const nlohmann::json json = kiln({"caches", "ls", "--json"}).json();
    for (const auto& space : json.at("spaces"))
      if (space["space"] == "files") return space["blobs"].get<int>();
    return 0;
  }
  unsigned mode_of(const std::string& name) const {
    struct stat status {};
    EXPECT_EQ(::stat(path(name).c_str(), &status), 0) << name;
    return status.st_mode & 0777;
  }
  void set_mode(const std::string& name, mode_t mode) const {
    ASSERT_EQ(::chmod(path(name).c_str(), mode), 0);
  }
  void put_record(const cache::Record& record) const {
    ASSERT_EQ(open()->put(record).put, cache::Put::stored);
  }
  /// A file of two parts, other for each number.
  static std::string large_file(std::size_t number) {
    return std::string(cache::kBlobPart + 1 + number, 'x');
  }
  /// Captures "new" and clears "old" at once, each in its own process. A clear may say that it failed; a record that
  /// stays after two that did not fail has its files.
  void capture_beside_clear() {
    const auto clear = start({"caches", "clear", "old"});
    const auto taken = start({"caches", "capture", path("jit"), "--name", "new"});
    const Finished cleared = clear->wait(), captured = taken->wait();
    EXPECT_EQ(captured.status, 0) << captured.err;
    if (cleared.status == 0) {
      EXPECT_EQ(restore({"new", "--to", path("place")})["found"], true);
      fs::remove_all(path("place"));
    } else {
      EXPECT_NE(cleared.err.find("was captured meanwhile"), std::string::npos) << cleared.err;
    }
    kiln({"caches", "clear", "dir"});
  }
};

/// Makes a file below `root` whose path there has more than 4,096 bytes, which no single call can name.
void write_deep(const std::string& root) {
  base::Fd at(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 21; ++i) {
    const std::string name(200, 'd');
    ASSERT_EQ(::mkdirat(at.get(), name.c_str(), 0700), 0);
    at = base::Fd(::openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(at);
  }
  const base::Fd file(::openat(at.get(), "kernel.cubin", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_TRUE(file);
}

}  // namespace

TEST_F(CapturedFiles, EveryModeBitIsRestored) {
  const mode_t before = ::umask(077);  // of the commands, too
  const std::vector<mode_t> modes = {0400, 0444, 0500, 0555, 0600, 0640, 0644, 0664, 0700, 0755, 0775, 0777};
  for (const mode_t mode : modes) {
    const std::string name = "jit/" + std::to_string(mode);
    write_old(name, "file " + std::to_string(mode));
    set_mode(name, mode);
    fs::create_directory(path("jit/d" + std::to_string(mode)));
    write_old("jit/d" + std::to_string(mode) + "/f", "in a directory");
    set_mode("jit/d" + std::to_string(mode), mode | 0700);
  }
  set_mode("jit", 0755);
  capture({path("jit"), "--name", "j"});
  restore({"j", "--to", path("new")});
  fs::create_directory(path("there"));
  restore({"j", "--to", path("there")});
  ::umask(before);
  EXPECT_EQ(mode_of("new"), 0755u);
  for (const std::string place : {"new/", "there/"})
    for (const mode_t mode : modes) {
      EXPECT_EQ(mode_of(place + std::to_string(mode)), mode) << place;
      EXPECT_EQ(mode_of(place + "d" + std::to_string(mode)), mode | 0700) << place;
    }
}

/// A user other than root cannot write into such a directory, so the restore has to open it for a while.
TEST_F(CapturedFiles, ADirectoryThatIsReadOnlyStaysSoAndIsFilledAgain) {
  fs::create_directory(path("jit/a/below"));
  write_old("jit/a/below/f", "in two of them");
  const std::vector<std::string> read_only = {"/a", "/a/below", ""};
  const auto set_modes = [&](const std::string& root, mode_t mode) {
    for (const std::string& name : read_only) set_mode(root + name, mode);
  };
  const auto expect_read_only = [&](const std::string& root) {
    for (const std::string& name : read_only) EXPECT_EQ(mode_of(root + name), 0555u) << root << name;
    EXPECT_EQ(mode_of(root + "/b"), 0755u);
    expect_no_staging(path(root));
  };
  set_mode("jit/b", 0755);
  set_mode("jit/a/below", 0555);
  set_mode("jit/a", 0555);
  set_mode("jit", 0555);
  capture({path("jit"), "--name", "j"});
  EXPECT_EQ(restore({"j", "--to", path("new")})["written"], 3);
  expect_read_only("new");
  set_modes("new", 0755);
  fs::remove_all(path("new/a/below"));
  fs::remove(path("new/a/kernel.cubin"));
  fs::remove(path("new/b/kernel.cubin"));
  for (const char* name : {"new/a", "new"}) set_mode(name, 0555);
  EXPECT_EQ(restore({"j", "--to", path("new")})["written"], 3);
  expect_read_only("new");
  EXPECT_EQ(text_of("new/a/below/f"), "in two of them");
  EXPECT_EQ(restore({"j", "--to", path("new")})["equal"], 3);
  expect_read_only("new");
  for (const char* root : {"jit", "new"}) set_modes(root, 0755);  // a user cannot remove them otherwise
}

TEST_F(CapturedFiles, AFileThatLostItsExecutableBitDiffers) {
  set_mode("jit/a/kernel.cubin", 0755);
  capture({path("jit")});
  set_mode("jit/a/kernel.cubin", 0644);
  EXPECT_EQ(restore({path("jit")})["kept"], 1);
  EXPECT_EQ(restore({path("jit"), "--force"})["written"], 1);
  EXPECT_EQ(mode_of("jit/a/kernel.cubin"), 0755u);
  set_mode("jit/b/kernel.cubin", 0755);
  EXPECT_EQ(capture({path("jit")})["changed"], true) << "a mode is a part of the record";
}

TEST_F(CapturedFiles, APathThatIsTooLongIsNamedAndLeftOut) {
  write_deep(path("jit"));
  const auto captured = capture({path("jit"), "--name", "j"});
  EXPECT_EQ(captured["files"], 2);
  EXPECT_EQ(captured["skipped"], 1);
  const std::string warning = captured["warnings"][0];
  EXPECT_NE(warning.find("ddd"), std::string::npos) << warning;
  EXPECT_NE(warning.find("at most 4096 are allowed"), std::string::npos) << warning;
  EXPECT_EQ(restore({"j", "--to", path("place")})["written"], 2) << "the record can be read";
}

TEST_F(CapturedFiles, TheStoreIsNoPartOfADirectoryThatHasIt) {
  fs::create_directories(path("jit/store"));
  write_old("jit/store/notes", "of the user");
  const Environment inside = {{"KILN_CACHE_DIR", path("jit/store")}};
  ASSERT_EQ(::chmod(path("jit/store").c_str(), 0700), 0);
  const auto captured = capture({path("jit"), "--name", "j"}, inside);
  EXPECT_EQ(captured["files"], 3);
  EXPECT_EQ(captured["warnings"], nlohmann::json({"'store/v1' is kiln's own store, so it is left out"}));
  EXPECT_EQ(capture({path("jit"), "--name", "j"}, inside)["changed"], false) << "though the store has grown";
  EXPECT_EQ(restore({"j", "--to", path("place")}, inside)["written"], 3);
  EXPECT_FALSE(fs::exists(path("place/store/v1")));
  for (const std::string& root : {path("jit/store/v1"), path("link")}) {
    fs::remove(path("link"));
    fs::create_symlink(path("jit/store/v1"), path("link"));
    const Finished refused = kiln({"caches", "capture", root + "/", "--name", "k"}, inside);
    EXPECT_EQ(refused.status, 2) << refused.out;
    EXPECT_NE(refused.err.find("is in kiln's own store"), std::string::npos) << refused.err;
  }
}

TEST_F(CapturedFiles, ClearTakesTheFilesThatNoOtherRecordNames) {
  capture({path("jit"), "--name", "one"});
  fs::remove(path("jit/b/kernel.cubin"));
  write_old("jit/b/third", "third");
  capture({path("jit"), "--name", "two"});
  add_profile("one", "");
  capture({"one"}, with_profiles());
  ASSERT_EQ(files(), 3);
  EXPECT_EQ(kiln({"caches", "clear", "dir.one", "--json"}).json()["files"], 0) << "the others have them all";
  auto dry = kiln({"caches", "clear", "dir", "-n", "--json"}).json();
  EXPECT_EQ(dry["removed"], 2);
  EXPECT_EQ(dry["files"], 3);
  ASSERT_EQ(files(), 3);
  fs::remove_all(path("jit"));
  write_old("jit/third", "third");
  add_profile("one", "");
  capture({"one"}, with_profiles());
  auto cleared = kiln({"caches", "clear", "dir", "--json"}).json();
  EXPECT_EQ(cleared["files"], 2);
  EXPECT_GT(cleared["removed_bytes"], 0);
  EXPECT_EQ(files(), 1);
  EXPECT_EQ(restore({"one"}, with_profiles())["found"], true);
  EXPECT_EQ(kiln({"caches", "clear", "one", "--json"}).json()["files"], 1) << "by the profile's name";
  EXPECT_EQ(files(), 0);
}

TEST_F(CapturedFiles, ADirectoryIsListedExplainedAndClearedByItsName) {
  capture({path("jit"), "--name", "my-jit"});
  write_old("other/third", "third");
  capture({path("other"), "--name", "other"});
  auto listed = kiln({"caches", "ls", "my-jit", "--json"}).json();
  EXPECT_EQ(listed["space"], "dir");
  ASSERT_EQ(listed["blobs"].size(), 1u);
  EXPECT_EQ(listed["blobs"][0]["key"], "my-jit");
  const Finished why = kiln({"caches", "why", "my-jit"});
  EXPECT_EQ(why.status, 0) << why.err;
  EXPECT_NE(why.out.find("A restore of directory my-jit finds 2 files"), std::string::npos) << why.out;
  EXPECT_EQ(kiln({"caches", "why", "my-jit", "--json"}).json()["found"], true);
  auto cleared = kiln({"caches", "clear", "my-jit", "--json"}).json();
  EXPECT_EQ(cleared["removed"], 1);
  EXPECT_EQ(cleared["files"], 2);
  EXPECT_EQ(files(), 1) << "the other directory stays";
  const Finished gone = kiln({"caches", "ls", "othr"});
  EXPECT_EQ(gone.status, 2);
  EXPECT_NE(gone.err.find("did you mean 'other'"), std::string::npos) << gone.err;
}

TEST_F(CapturedFiles, ACaptureBesideAClearCanBeRestored) {
  for (int i = 0; i < 50; ++i) write_old("jit/many/" + std::to_string(i), "file " + std::to_string(i));
  for (int round = 0; round < 10; ++round) {
    capture({path("jit"), "--name", "old"});
    capture_beside_clear();
  }
}

TEST_F(CapturedFiles, ACaptureOfALargeFileBesideAClearCanBeRestored) {
  const int rounds = ci_or_night(3, 30);
  for (int round = 0; round < rounds; ++round) {
    capture({path("jit"), "--name", "old"});
    write_old("jit/large", large_file(static_cast<std::size_t>(round)), 1'700'000'000 + round);
    capture_beside_clear();
    fs::remove(path("jit/large"));
  }
}

/// The test is the capture that a clear overtakes: between the parts of a file and its head.
TEST_F(CapturedFiles, PartsThatAClearTakesFromACaptureAreStoredAgain) {
  capture({path("jit"), "--name", "old"});
  const std::string large = large_file(1);
  std::optional<cache::Record> head;
  cache::each_record({"files", "kiln-files 1", base::digest_of(large).hex()}, large, cache::kBlobPart,
                     [&](cache::Record&& record) {
                       head = std::move(record);
                       if (cache::decode_blob(head->facts).part != 0) put_record(*head);
                     });
  const auto records = [&] { return kiln({"stats", "--json"}).json()["blobs"].get<int>(); };
  ASSERT_EQ(records(), 3 + 2) << "a list, two files, and two parts";
  EXPECT_EQ(kiln({"caches", "clear", "old"}).status, 0);
  EXPECT_EQ(records(), 0);
  put_record(*head);
  write_old("jit/large", large);
  EXPECT_EQ(capture({path("jit"), "--name", "new"})["stored"], 3) << "a head without its parts is no file";
  EXPECT_EQ(restore({"new", "--to", path("place")})["written"], 3);
  EXPECT_TRUE(text_of("place/large") == large);
}

TEST_F(CapturedFiles, AFileThatLostAPartIsMissingAndStoredAgain) {
  const std::string large = large_file(1);
  write_old("jit/large", large);
  capture({path("jit"), "--name", "j"});
  cache::BlobFacts facts;
  cache::each_record({"files", "kiln-files 1", base::digest_of(large).hex()}, large, cache::kBlobPart,
                     [&](cache::Record&& record) { facts = cache::decode_blob(record.facts); });
  ASSERT_EQ(open()->remove({cache::blob_part_key(facts, 1).key}, base::Deadline::never()), 1u);
  const Finished why = kiln({"caches", "why", "j", "--json"});
  EXPECT_EQ(why.status, 3);
  EXPECT_EQ(why.json()["missing"], 1);
  EXPECT_EQ(capture({path("jit"), "--name", "j"})["stored"], 1);
  EXPECT_EQ(restore({"j", "--to", path("place")})["written"], 3);
}

TEST_F(CapturedFiles, FilesStayWhileARecordCannotBeRead) {
  capture({path("jit"), "--name", "j"});
  put({"dir.other", "v1", "k"}, "no list of files");
  const Finished done = kiln({"caches", "clear", "dir"});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_NE(done.out.find("Files stay, because the record 'k' of space dir.other cannot be read"),
            std::string::npos)
      << done.out;
  EXPECT_EQ(kiln({"caches", "ls", "files", "--json"}).json()["blobs"].size(), 2u);
}
