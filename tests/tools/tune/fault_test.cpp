// Faults: a damaged choice, a cache that cannot be written, and a search that is killed.
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "tests/support/other_user.hpp"
#include "tools/tune/fixture.hpp"

namespace kiln::test {
namespace {

TEST_F(Tune, ADamagedChoiceIsAMissAndIsHealedByTheNextSearch) {
  ASSERT_EQ(tune({"N=3"}).status, 0);
  const std::string file = cache() + "/v1/data.mdb";
  std::string bytes = base::read_file(file)->bytes;
  const std::string device =
      std::string("\x0a\0\0\0", 4) + kGpu;  // in the facts; the key text has digits there
  std::size_t found = 0;
  for (std::size_t at = 0; (at = bytes.find(device, at)) != std::string::npos; ++at, ++found)
    bytes[at + device.size() - 1] ^= 1;
  ASSERT_GE(found, 1u);
  base::write_file(file, bytes);
  const Finished r = kiln({"compile", "tuned", "N=3", "--json"}, gpu());
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.json()["params"]["THREADS"], "128");
  EXPECT_EQ(kiln({"verify"}).status, 4);
  ASSERT_EQ(tune({"N=3"}).status, 0);
  EXPECT_EQ(threads({"N=3"}), "64");
  EXPECT_EQ(kiln({"verify"}).status, 0);
}

TEST_F(Tune, AKilledSearchLeavesNothingHalf) {
  const auto running = start({"tune", "tuned", "N=3"}, gpu("64=5", {{"TUNE_SLEEP_MS", "1"}}));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (running->out().find("[4/4]") == std::string::npos && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  running->send(SIGKILL);
  EXPECT_EQ(running->wait().status, 128 + SIGKILL);
  EXPECT_EQ(choices().size(), 0u);
  EXPECT_EQ(kiln({"verify"}).status, 0);
  EXPECT_EQ(threads({"N=3"}), "128");
  ASSERT_EQ(tune({"N=3"}).status, 0);
  EXPECT_EQ(threads({"N=3"}), "64");
}

TEST_F(Tune, CtrlCStoresNothing) {
  const auto running = start({"tune", "tuned", "N=3", "n=50,60,70"}, gpu("64=5", {{"TUNE_SLEEP_MS", "1"}}));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (running->out().find("[4/4]") == std::string::npos && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  running->send(SIGINT);
  const Finished r = running->wait();
  EXPECT_EQ(r.status, 130) << r.out << r.err;
  EXPECT_EQ(choices().size(), 0u);
}

/// A cache of root, read by a user who may not write it.
TEST_F(Tune, ACacheThatCannotBeWrittenServesItsChoices) {
  KILN_NEEDS_ROOT();
  ASSERT_EQ(tune({"N=3"}).status, 0);
  ::chmod(path("").c_str(), 0777);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path("templates")))
    ::chmod(entry.path().c_str(), 0644);
  ::chmod(path("templates").c_str(), 0755);
  for (const char* place : {"", "/v1"}) ::chmod((cache() + place).c_str(), 0755);
  ::chmod((cache() + "/v1/data.mdb").c_str(), 0644);
  const std::string said = testing::as_user(testing::kUser, [&] {
    const Finished r = kiln({"compile", "tuned", "N=3", "--device", kGpu, "--json"}, no_gpu());
    return r.status == 0 ? nlohmann::json::parse(r.out)["params"]["THREADS"].get<std::string>() : r.err;
  });
  EXPECT_EQ(said, "64");
}

}  // namespace
}  // namespace kiln::test
