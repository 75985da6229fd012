// Blobs of any size through the fleet's tier: what a node pushes, another node reads or pulls.
#include <filesystem>

#include "cache/blob/join.hpp"
#include "cache/store/store.hpp"
#include "runtime/blob/blob_contents.hpp"
#include "support/nightly.hpp"
#include "tools/fleet/fixture.hpp"

namespace kiln::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class FleetBlobs : public Fleet {
 protected:
  /// The environment of a node that does not know of the tier.
  Environment alone(const std::string& name) const { return {{"KILN_CACHE_DIR", path(name)}}; }
  static base::Deadline soon() { return base::Deadline::after(std::chrono::seconds(60)); }
  std::shared_ptr<cache::Store> store(const std::string& name) const {
    cache::StoreOptions options;
    options.directory = path(name);
    return cache::Store::open(options);
  }
  void put(const std::string& node, const std::string& key, const std::string& content,
           std::uint64_t part_bytes = cache::kBlobPart) const {
    const auto to = store(node);
    cache::each_record({"s", "v1", key}, content, part_bytes, [&](cache::Record&& record) {
      EXPECT_EQ(to->put(record, to->put_wait(), cache::Existing::replaced).put, cache::Put::stored);
    });
  }
  /// The blob in the store of a node, or "(absent)".
  std::string content_in(const std::string& node, const std::string& key) const {
    const auto from = store(node);
    const auto head = from->peek(cache::blob_key({"s", "v1", key}).key, soon());
    if (!head) return "(absent)";
    const cache::BlobFacts facts = cache::decode_blob(head->facts);
    cache::JoinedContent joined(facts);
    if (facts.parts == 0) joined.add(cache::piece_of(facts, {{}, head->image}));
    for (std::uint32_t i = 0; i < facts.parts; ++i) {
      const auto part = from->peek(cache::blob_part_key(facts, i).key, soon());
      if (!part) return "(absent)";
      joined.add(cache::piece_of(cache::decode_blob(part->facts), {{}, part->image}));
    }
    const auto whole = joined.whole();
    return whole ? std::string(whole->view) : "(absent)";
  }
  std::uint64_t records_in(const std::string& node) const { return store(node)->stats().entries; }
  nlohmann::json push(const std::string& name) {
    const Finished done = kiln({"remote", "push", "--all-jits", "--json"}, node(name));
    EXPECT_EQ(done.status, 0) << done.err;
    return done.json();
  }
  nlohmann::json pull(const std::string& name) {
    const Finished done = kiln({"remote", "pull", "--all-jits", "--json"}, reader(name));
    EXPECT_EQ(done.status, 0) << done.err;
    return done.json();
  }
};

TEST_F(FleetBlobs, APushSendsALargeBlobInPartsAndAPullBringsIt) {
  KILN_NIGHTLY_ONLY();  // a server must answer within a second with 12 MiB
  const std::string middle = testing::noise(20 * kMiB), large = testing::noise(80 * kMiB + 77);
  put("a", "small", "content");
  put("a", "middle", middle);
  put("a", "large", large);
  const std::uint64_t parts = (large.size() + 12 * kMiB - 1) / (12 * kMiB);
  const auto pushed = push("a");
  EXPECT_EQ(pushed["pushed"], 1 + 3 + parts + 1);
  EXPECT_EQ(pushed["entries"], pushed["pushed"]);
  EXPECT_EQ(entries(), pushed["pushed"]);
  EXPECT_EQ(push("a")["present"], pushed["pushed"]) << "nothing is written again";
  EXPECT_EQ(pull("b")["stored"], pushed["pushed"]);
  EXPECT_EQ(content_in("b", "small"), "content");
  EXPECT_TRUE(content_in("b", "middle") == middle);
  EXPECT_TRUE(content_in("b", "large") == large);
  EXPECT_EQ(push("b")["present"], pushed["pushed"]) << "a node that pulled has the same blobs";
}

TEST_F(FleetBlobs, APulledPartThatNoBlobHereHasIsLeftOut) {
  KILN_NIGHTLY_ONLY();  // a server must answer within a second with 12 MiB
  const std::string middle = testing::noise(20 * kMiB);
  put("a", "middle", middle);
  put("b", "middle", middle);
  push("a");
  pull("b");
  EXPECT_EQ(records_in("b"), 1u) << "it is one record here, and two parts in the tier";
  EXPECT_TRUE(content_in("b", "middle") == middle);
}

TEST_F(FleetBlobs, ABlobWithOtherBytesIsPushedAgain) {
  put("a", "k", "one");
  push("a");
  put("a", "k", "two");
  EXPECT_EQ(push("a")["pushed"], 1);
  pull("b");
  EXPECT_EQ(content_in("b", "k"), "two");
}

TEST_F(FleetBlobs, ABlobWithoutOneOfItsPartsIsNotPushed) {
  const std::string content = testing::noise(20 * kMiB);
  put("a", "k", content, 8 * kMiB);
  cache::BlobFacts facts;
  cache::each_record({"s", "v1", "k"}, content, 8 * kMiB,
                     [&](cache::Record&& record) { facts = cache::decode_blob(record.facts); });
  ASSERT_EQ(store("a")->remove({cache::blob_part_key(facts, 1).key}, soon()), 1u);
  const auto pushed = push("a");
  EXPECT_EQ(pushed["pushed"], 0);
  EXPECT_EQ(pushed["removed"], 1) << "a part was evicted, so the blob is absent";
  EXPECT_EQ(entries(), 0u);
}

TEST_F(FleetBlobs, ACaptureWritesTheDirectoryToTheTier) {
  std::filesystem::create_directories(path("jit"));
  write("jit/one", "one");
  write("jit/two", "two");
  write("jit/copy", "one");
  const Arguments command = {"caches", "capture", path("jit"), "--name", "j", "--json"};
  ASSERT_EQ(kiln(command, node("a")).status, 0);
  EXPECT_EQ(entries(), 0u);
  Arguments with_push = command;
  with_push.push_back("--push");
  const Finished pushed = kiln(with_push, node("a"));
  ASSERT_EQ(pushed.status, 0) << pushed.err;
  EXPECT_EQ(pushed.json()["tier"]["pushed"], 3)
      << "two contents and a list, though they were captured before";
  EXPECT_EQ(kiln(with_push, node("a")).json()["tier"]["present"], 3);
  const Finished restored = kiln({"caches", "restore", "j", "--to", path("new")}, reader("b"));
  EXPECT_EQ(restored.status, 0) << restored.out << restored.err;
  EXPECT_EQ(base::read_file(path("new/two"))->bytes, "two");
  EXPECT_EQ(kiln(with_push, alone("a")).status, 2) << "there is no tier";
}

TEST_F(FleetBlobs, AWrappedCommandsDirectoriesAndBlobsAreWrittenToTheTier) {
  std::filesystem::create_directories(path("profiles"));
  write("profiles/one.toml", "[[directory]]\nvariable = 'ONE_DIR'\n");
  put("a", "k", "of the command");
  const auto with_profile = [&](Environment environment, const std::string& directory) {
    environment["KILN_CACHES_PROFILES"] = path("profiles"), environment["ONE_DIR"] = path(directory);
    return environment;
  };
  const std::string command =
      "mkdir -p $ONE_DIR; echo compiled > $ONE_DIR/kernel; "
      "echo '{\"process\": 1, \"spaces\": [{\"space\": \"s\", \"puts\": 1}]}' > $KILN_CACHES_REPORT/1.json; ";
  const auto wrap = [&](const Environment& environment, const std::string& flag, const std::string& end) {
    return kiln({"wrap", "--profile", "one", flag, "--", "sh", "-c", command + end}, environment);
  };
  const Environment writer = with_profile(node("a"), "jit");
  EXPECT_EQ(wrap(with_profile(alone("a"), "jit"), "--push", "touch " + path("ran")).status, 2);
  EXPECT_FALSE(std::filesystem::exists(path("ran"))) << "there is no tier, so the command does not run";
  EXPECT_EQ(wrap(writer, "--push", "exit 7").status, 7);
  EXPECT_EQ(wrap(writer, "--json", "").json().contains("tier"), false);
  EXPECT_EQ(entries(), 0u) << "neither a failed command nor one without --push writes to the tier";
  const Finished pushed = wrap(writer, "--push", "");
  EXPECT_EQ(pushed.status, 0) << pushed.err;
  EXPECT_NE(pushed.err.find("3 entries written to the fleet's tier"), std::string::npos) << pushed.err;
  pull("b");
  EXPECT_EQ(content_in("b", "k"), "of the command");
  const Environment other = with_profile(reader("c"), "restored");
  EXPECT_EQ(kiln({"wrap", "--profile", "one", "--", "sh", "-c", "cat $ONE_DIR/kernel"}, other).out,
            "compiled\n");
}

TEST_F(FleetBlobs, AServerThatRefusesDoesNotFailTheWrappedCommand) {
  put("a", "k", testing::noise(3 * kMiB));
  ask({"CONFIG", "SET", "proto-max-bulk-len", "1048576"});
  const std::string report = "echo '{\"spaces\": [{\"space\": \"s\"}]}' > $KILN_CACHES_REPORT/1.json";
  const Finished done =
      kiln({"wrap", "--profile", "flashinfer", "--push", "--json", "--", "sh", "-c", report}, node("a"));
  EXPECT_EQ(done.status, 0);
  EXPECT_EQ(done.json()["tier"]["failed"], 1) << done.out;
  EXPECT_NE(done.err.find("the fleet's tier at "), std::string::npos) << done.err;
}

TEST_F(FleetBlobs, CtrlCInAPushAtTheEndStillPrintsTheSummary) {
  std::filesystem::create_directories(path("profiles"));
  write("profiles/one.toml", "[[directory]]\nvariable = 'ONE_DIR'\n[depends]\nfacts = ['python']\n");
  // kiln asks this interpreter for its version before the capture, and the push comes after the capture.
  write("python", "#!/bin/sh\nmv " + path("ended") + ' ' + path("told") +
                      " 2>/dev/null && kill -INT $PPID\nprintf '\\nkiln-python\\n3.12\\n'\n");
  std::filesystem::permissions(path("python"), std::filesystem::perms(0755));
  Environment environment = node("a");
  environment["KILN_CACHES_PROFILES"] = path("profiles"), environment["ONE_DIR"] = path("jit");
  const std::string make = "mkdir -p $ONE_DIR; echo compiled > $ONE_DIR/kernel; touch " + path("ended");
  Arguments command = {"wrap",         "--profile", "one", "--push", "--python",
                       path("python"), "--",        "sh",  "-c",     make};
  const Finished done = kiln(command, environment);
  EXPECT_EQ(done.status, 130) << done.err;
  EXPECT_NE(done.err.find("one: restored 0 files, captured 1 new file of 1"), std::string::npos) << done.err;
  EXPECT_NE(
      done.err.find("2 entries that are here may not be in the tier yet: run 'kiln remote push --all-jits'"),
      std::string::npos)
      << done.err;
  EXPECT_EQ(entries(), 0u);
  command.insert(command.begin() + 1, "--json");
  const Finished as_json = kiln(command, environment);
  EXPECT_EQ(as_json.status, 130);
  EXPECT_EQ(as_json.json().at("status"), 0) << "of the command";
  EXPECT_EQ(as_json.json().at("tier").at("left"), 2);
}

TEST_F(FleetBlobs, AnErrorOfThePushIsNotOneOfTheCapture) {
  std::filesystem::create_directories(path("jit"));
  std::filesystem::create_directories(path("profiles"));
  write("jit/kernel", "compiled");
  // Long ago, so that a second capture neither reads the file nor writes to the store.
  std::filesystem::last_write_time(path("jit/kernel"),
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(24));
  write("profiles/one.toml", "[[directory]]\nvariable = 'ONE_DIR'\n");
  Environment environment = node("a");
  environment["KILN_CACHES_PROFILES"] = path("profiles"), environment["ONE_DIR"] = path("jit");
  const Arguments command = {"wrap", "--profile", "one", "--push", "--json", "--", "true"};
  ASSERT_EQ(kiln(command, environment).status, 0);
  environment["LD_PRELOAD"] = places::kFaultLibrary;
  // The first read of the store that may fail without a failed capture is one of the push.
  for (int reads = 1; reads <= 100; ++reads) {
    environment["FAULT_RULES"] = "pread@data.mdb:" + std::to_string(reads) + "+:EIO";
    const Finished done = kiln(command, environment);
    EXPECT_EQ(done.status, 0) << done.err;
    const auto json = done.json();
    if (json.at("captured").at(0).at("reason") != "") continue;
    EXPECT_NE(done.err.find("--push: one: "), std::string::npos) << done.err;
    EXPECT_EQ(json.at("captured").at(0).at("files"), 1);
    EXPECT_NE(json.at("tier").at("fault"), nullptr);
    return;
  }
  ADD_FAILURE() << "no read failed after the capture";
}

TEST_F(FleetBlobs, ADirectoryWhoseFilesTheTierRefusesHasNoRecordThere) {
  std::filesystem::create_directories(path("jit"));
  write("jit/one", testing::noise(3 * kMiB));
  ask({"CONFIG", "SET", "proto-max-bulk-len", "1048576"});  // the record would fit
  const Finished pushed = kiln({"caches", "capture", path("jit"), "--name", "j", "--push"}, node("a"));
  EXPECT_EQ(pushed.status, 3) << pushed.out << pushed.err;
  EXPECT_EQ(entries(), 0u);
}

TEST_F(FleetBlobs, ADirectoryWithALargeFileIsRestoredFromTheTier) {
  KILN_NIGHTLY_ONLY();  // a server must answer within a second with 12 MiB
  std::filesystem::create_directories(path("jit"));
  const std::string large = testing::noise(20 * kMiB);
  write("jit/large", large);
  write("jit/small", "small");
  const Finished captured = kiln({"caches", "capture", path("jit"), "--name", "j"}, alone("a"));
  ASSERT_EQ(captured.status, 0) << captured.err;
  push("a");
  const auto restore = [&](const std::string& place, const Environment& environment) {
    const Finished done = kiln({"caches", "restore", "j", "--to", path(place)}, environment);
    EXPECT_EQ(done.status, 0) << done.out << done.err;
    EXPECT_TRUE(base::read_file(path(place + "/large"))->bytes == large);
  };
  restore("read", reader("b"));
  pull("c");
  restore("pulled", alone("c"));
}

}  // namespace
}  // namespace kiln::test
