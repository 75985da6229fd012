// kiln wrap.
#include <csignal>
#include <thread>

#include "support/time_limit.hpp"
#include "tools/caches/fixture.hpp"

using namespace kiln;
using namespace kiln::test;

namespace fs = std::filesystem;

namespace {

struct Wrapped : CachesCommand {
  void SetUp() override {
    CachesCommand::SetUp();
    fs::create_directories(path("profiles"));
    write("profiles/one.toml", "[[directory]]\nvariable = 'ONE_DIR'\n");
  }
  Environment with_profiles() const {
    return {{"KILN_CACHES_PROFILES", path("profiles")}, {"ONE_DIR", path("jit")}};
  }
  Finished wrap(const Arguments& command, const Arguments& flags = {"--profile", "one"}) {
    Arguments all = {"wrap"};
    all.insert(all.end(), flags.begin(), flags.end());
    all.push_back("--");
    all.insert(all.end(), command.begin(), command.end());
    return kiln(all, with_profiles());
  }
  bool wait_for(const std::string& name) const {
    const auto deadline = base::Deadline::after(at_most(std::chrono::seconds(20)));
    while (!fs::exists(path(name)) && !deadline.passed())
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return fs::exists(path(name));
  }
};

}  // namespace

TEST_F(Wrapped, TheSecondRunFindsWhatTheFirstOneMade) {
  const std::string make = "mkdir -p $ONE_DIR && echo compiled > $ONE_DIR/kernel";
  const Finished first = wrap({"sh", "-c", make}, {"--profile", "one", "--json"});
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(first.json()["restored"][0]["found"], false);
  EXPECT_EQ(first.json()["captured"][0]["stored"], 1);
  fs::remove_all(path("jit"));
  const Finished second = wrap({"sh", "-c", "cat $ONE_DIR/kernel"});
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(second.out, "compiled\n");
  EXPECT_NE(second.err.find("one: restored 1 file"), std::string::npos) << second.err;
}

TEST_F(Wrapped, ItEndsAsTheCommandDoes) {
  EXPECT_EQ(wrap({"sh", "-c", "exit 7"}).status, 7);
  EXPECT_EQ(wrap({"sh", "-c", "kill -USR1 $$"}).status, 128 + SIGUSR1);
  const Finished absent = wrap({path("no-such-program")});
  EXPECT_EQ(absent.status, 1);
  EXPECT_NE(absent.err.find("cannot start"), std::string::npos) << absent.err;
  EXPECT_EQ(wrap({"true"}, {"--profile", "none-such"}).status, 2);
}

TEST_F(Wrapped, AFailedCommandIsNotCaptured) {
  const Finished done = wrap({"sh", "-c", "mkdir -p $ONE_DIR; echo torn > $ONE_DIR/kernel; exit 3"},
                             {"--profile", "one", "--json"});
  EXPECT_EQ(done.status, 3);
  EXPECT_EQ(done.json()["captured"][0]["files"], 0);
  EXPECT_EQ(kiln({"caches", "why", "one"}, with_profiles()).status, 3);
}

TEST_F(Wrapped, ReportsOfProcessesAreAddedUp) {
  const std::string report =
      R"({"process": 1, "argv": [], "spaces": [{"space": "triton", "hits": 3, "misses": 1, "puts": 1}]})";
  const std::string command = "echo '" + report + "' > $KILN_CACHES_REPORT/1.json; echo '" + report +
                              "' > $KILN_CACHES_REPORT/2.json; echo '[' > $KILN_CACHES_REPORT/3.json; "
                              "test \"$KILN_CACHES\" = on";
  const Finished done = wrap({"sh", "-c", command}, {"--profile", "one", "--json"});
  ASSERT_EQ(done.status, 0) << done.err;
  const auto spaces = done.json()["spaces"];
  ASSERT_EQ(spaces.size(), 1u);
  EXPECT_EQ(spaces.at(0).at("hits"), 6);
  EXPECT_EQ(done.json()["processes"], 2);
  EXPECT_NE(done.err.find("3.json"), std::string::npos) << "the torn report is named: " << done.err;
  const Finished table = wrap({"sh", "-c", command});
  EXPECT_NE(table.err.find("triton"), std::string::npos) << table.err;
}

TEST_F(Wrapped, AVariableThatIsSetStays) {
  for (const std::string value : {"triton", "off"}) {
    Environment environment = with_profiles();
    environment["KILN_CACHES"] = value;
    EXPECT_EQ(kiln({"wrap", "--profile", "one", "--", "sh", "-c", "echo $KILN_CACHES"}, environment).out,
              value + "\n");
  }
}

TEST_F(Wrapped, ASignalReachesTheCommand) {
  const auto run = start({"wrap", "--profile", "one", "--", "sh", "-c",
                          "trap 'exit 9' TERM; touch " + path("ready") + "; while :; do sleep 0.01; done"},
                         with_profiles());
  ASSERT_TRUE(wait_for("ready"));
  run->send(SIGTERM);
  EXPECT_EQ(run->wait().status, 9);
}

TEST_F(Wrapped, ASignalThatWasIgnoredStaysIgnored) {
  for (const int signal : {SIGHUP, SIGINT, SIGPIPE}) {
    const auto before = std::signal(signal, SIG_IGN);  // as nohup does
    const auto run = start(
        {"wrap", "--profile", "one", "--", "sh", "-c", "kill -" + std::to_string(signal) + " $$; echo alive"},
        with_profiles());
    std::signal(signal, before);
    const Finished done = run->wait();
    EXPECT_EQ(done.status, 0) << signal;
    EXPECT_EQ(done.out, "alive\n") << signal;
  }
}

TEST_F(Wrapped, InModeSealedADirectoryThatWasNeverCapturedIsNoWarning) {
  Environment environment = with_profiles();
  environment["KILN_MODE"] = "sealed";
  const Finished done = kiln({"wrap", "--profile", "one", "--", "mkdir", path("jit")}, environment);
  EXPECT_EQ(done.status, 0);
  EXPECT_EQ(done.err, "");
}

TEST_F(Wrapped, TheCommandGetsTheSameStore) {
  const Finished done = kiln({"wrap", "--profile", "one", "--cache-dir", path("elsewhere"), "--", "sh", "-c",
                              "echo $KILN_CACHE_DIR"},
                             with_profiles());
  EXPECT_EQ(done.out, path("elsewhere") + "\n");
}

TEST_F(Wrapped, WithoutProfilesEveryDirectoryWithoutAHookCounts) {
  const Finished done = wrap({"true"}, {"--json"});
  ASSERT_EQ(done.status, 0) << done.err;
  std::set<std::string> names;
  const auto json = done.json();
  for (const auto& profile : json.at("restored")) names.insert(profile.at("profile"));
  EXPECT_TRUE(names.contains("one"));
  EXPECT_TRUE(names.contains("flashinfer"));
  EXPECT_FALSE(names.contains("triton-dir")) << "kiln.caches.triton serves it";
}

TEST_F(Wrapped, TheEnvironmentOfTheCommandHasThePackagesThatCount) {
  write("profiles/one.toml", "[[directory]]\nvariable = 'ONE_DIR'\n[depends]\ndistributions = ['thing']\n");
  fs::create_directories(path("venv/bin"));
  fs::create_directories(path("venv/lib/python3.12/site-packages/thing-7.dist-info"));
  write("venv/pyvenv.cfg", "version = 3.12.4\n");
  for (const std::string program : {"python", "serve"}) {
    write("venv/bin/" + program, "#!/bin/sh\nmkdir -p $ONE_DIR; echo compiled > $ONE_DIR/kernel\n");
    fs::permissions(path("venv/bin/" + program), fs::perms(0755));
  }
  for (const std::string program : {"python", "serve"}) {
    ASSERT_EQ(wrap({path("venv/bin/" + program)}).status, 0);
    const auto blobs = kiln({"caches", "ls", "one", "--json"}).json();
    ASSERT_EQ(blobs.at("blobs").size(), 1u) << "both commands have the same record";
    EXPECT_EQ(blobs.at("blobs").at(0).at("compatibility"), "kiln-dir 1\ndist.thing 7\n");
  }
}
