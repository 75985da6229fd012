// Blobs through a service: stores and layers, leases between processes, budgets, and faults that are misses.
#include "runtime/blob/blob_space.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "base/log.hpp"
#include "kiln/error.hpp"
#include "runtime/blob/blob_contents.hpp"
#include "runtime/service/service.hpp"
#include "support/tree.hpp"

namespace kiln::runtime {
namespace {

using namespace std::chrono_literals;

using testing::noise;
using testing::soon;

class BlobSpaceTest : public ::testing::Test {
 protected:
  BlobSpaceTest() {
    base::set_log_sink([this](base::Level, std::string_view line) { lines_.emplace_back(line); });
  }
  ~BlobSpaceTest() override { base::set_log_sink(nullptr); }
  Options options(const std::string& directory = "cache") const {
    Options o = Options::hermetic();
    o.cache_dir = tree_.at(directory);
    return o;
  }
  static BlobSpaceOptions behind() {
    BlobSpaceOptions o{"s", ""};
    o.behind = true;
    return o;
  }
  static BlobSpace::Put put(BlobSpace& space, std::string_view key, std::string_view content) {
    std::string why;
    return space.put(key, content, nullptr, why);
  }
  /// The exit status of `body` in a forked child, which uses services of its own.
  template <class Body>
  static pid_t child(const Body& body) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(body() ? 0 : 1);
    return pid;
  }
  static bool succeeded(pid_t pid) {
    int status = 0;
    return ::waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

  testing::Tree tree_;
  std::vector<std::string> lines_;
};

TEST_F(BlobSpaceTest, WhatWasPutIsFoundByAllServicesOfTheStore) {
  Service service(options());
  BlobSpace& space = service.blobs().open({"triton", "v1"});
  EXPECT_EQ(space.get("k"), std::nullopt);
  EXPECT_EQ(put(space, "k", "one"), BlobSpace::Put::stored);
  EXPECT_EQ(put(space, "k", "one"), BlobSpace::Put::present);
  EXPECT_EQ(space.get("k"), "one");
  EXPECT_EQ(put(space, "k", "two"), BlobSpace::Put::stored) << "another content replaces it";
  Service other(options());
  EXPECT_EQ(other.blobs().open({"triton", "v1"}).get("k"), "two");
  EXPECT_EQ(other.blobs().open({"triton", "v2"}).get("k"), std::nullopt) << "another compatibility";
  EXPECT_EQ(other.blobs().open({"inductor", "v1"}).get("k"), std::nullopt) << "another space";
  EXPECT_EQ(&service.blobs().open({"triton", "v1"}), &space);
}

TEST_F(BlobSpaceTest, ALayerIsAskedFirstAndIsNeverWritten) {
  {
    Service writer(options("layer"));
    put(writer.blobs().open({"s", ""}), "k", "of the layer");
  }
  Options with = options();
  with.cache_layers = tree_.at("layer");
  Service service(with);
  BlobSpace& space = service.blobs().open({"s", ""});
  EXPECT_EQ(space.get("k"), "of the layer");
  put(space, "own", "x");
  const auto listed = space.list();
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_NE(listed[0].directory, listed[1].directory);
  EXPECT_FALSE(space.erase("k")) << "it is not in the writable store";
  EXPECT_TRUE(space.erase("own"));
  EXPECT_EQ(space.get("own"), std::nullopt);
}

TEST_F(BlobSpaceTest, ALargeBlobIsWholeOrAbsent) {
  Service service(options());
  BlobSpace& space = service.blobs().open({"s", ""});
  const std::string content = noise(cache::kBlobPart + 12345);
  ASSERT_EQ(put(space, "k", content), BlobSpace::Put::stored);
  EXPECT_TRUE(space.get("k") == content);
  ASSERT_EQ(space.list().size(), 1u) << "parts are not listed";
  EXPECT_EQ(space.list()[0].size, content.size());
  const auto listed =
      service.state().stores.writable()->peek_text(cache::blob_key({"s", "", "k"}).key, soon());
  const Key part = cache::blob_part_key(cache::decode_blob(listed->facts), 1).key;
  ASSERT_EQ(service.state().stores.writable()->trim({part, part}, 0, soon()), 1u);
  EXPECT_EQ(space.get("k"), std::nullopt) << "a part was evicted";
  EXPECT_TRUE(space.list().empty());
  ASSERT_EQ(put(space, "k", content), BlobSpace::Put::stored) << "the part is written again";
  EXPECT_TRUE(space.get("k") == content);
  EXPECT_TRUE(space.erase("k"));
  EXPECT_EQ(service.state().stores.writable()->stats().entries, 0u) << "its parts go with it";
}

TEST_F(BlobSpaceTest, ThePartsOfAReplacedBlobGoWithIt) {
  for (const bool is_behind : {false, true}) {
    Service service(options(is_behind ? "behind" : "cache"));
    BlobSpace& space = service.blobs().open(is_behind ? behind() : BlobSpaceOptions{"s", ""});
    const auto entries = [&] {
      space.flush(soon());
      return service.state().stores.writable()->stats().entries;
    };
    std::string content(cache::kBlobPart + 12345, 'x');
    put(space, "other", "stays");
    put(space, "k", content);
    EXPECT_EQ(entries(), 4u) << "the other one, two parts, and the record that names them";
    content[7] = 'y';
    put(space, "k", content);
    EXPECT_EQ(entries(), 4u);
    EXPECT_TRUE(space.get("k") == content);
    put(space, "k", "small");
    EXPECT_EQ(entries(), 2u);
    EXPECT_EQ(space.get("k"), "small");
    EXPECT_EQ(space.get("other"), "stays");
  }
}

TEST_F(BlobSpaceTest, ADamagedBlobIsAMissAndIsPutAgain) {
  const std::string noisy = noise(5000);
  {
    Service service(options());
    put(service.blobs().open({"s", ""}), "k", noisy);
  }
  const std::string file = tree_.at("cache") + "/v1/data.mdb";
  std::ifstream in(file, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const std::size_t at = bytes.find(noisy.substr(0, 64));
  ASSERT_NE(at, std::string::npos);
  {
    std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(at + 10));
    out.put('!');
  }
  Service service(options());
  BlobSpace& space = service.blobs().open({"s", ""});
  EXPECT_EQ(space.get("k"), std::nullopt);
  EXPECT_EQ(space.counts().damaged.load(), 1u);
  EXPECT_EQ(put(space, "k", noisy), BlobSpace::Put::stored);
  EXPECT_EQ(space.get("k"), noisy);
}

TEST_F(BlobSpaceTest, OneProcessMakesABlobAndTheOthersWaitForIt) {
  { Service service(options()); }
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i)
    children.push_back(child([&] {
      Service service(options());
      BlobSpace& space = service.blobs().open({"s", ""});
      BlobSpace::Leased got = space.lease("k", soon());
      if (got.found) return *got.found == "made";
      if (!got.lease) return false;
      const int log = ::open((tree_.at("made")).c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
      if (::write(log, "x", 1) != 1) return false;
      std::this_thread::sleep_for(50ms);
      std::string why;
      return space.put("k", "made", std::move(got.lease), why) == BlobSpace::Put::stored;
    }));
  for (const pid_t pid : children) EXPECT_TRUE(succeeded(pid));
  std::ifstream in(tree_.at("made"));
  const std::string made((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(made, "x");
}

TEST_F(BlobSpaceTest, AKilledMakersLeaseIsFreeAtOnce) {
  { Service service(options()); }
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t maker = child([&] {
    Service service(options());
    const auto got = service.blobs().open({"s", ""}).lease("k", soon());
    if (::write(ready[1], got.lease ? "y" : "n", 1) != 1) return false;
    ::pause();
    return false;
  });
  char held = 0;
  ASSERT_EQ(::read(ready[0], &held, 1), 1);
  ASSERT_EQ(held, 'y');
  Service service(options());
  BlobSpace& space = service.blobs().open({"s", ""});
  const auto timed_out = space.lease("k", base::Deadline::after(30ms));
  EXPECT_FALSE(timed_out.found || timed_out.lease) << "make it without a lease";
  EXPECT_EQ(space.counts().wait_timeouts.load(), 1u);
  EXPECT_EQ(space.counts().misses.load(), 1u);
  int asked = 0;
  const auto interrupted = space.lease("k", base::Deadline::never(), [&] { return ++asked == 3; });
  EXPECT_FALSE(interrupted.found || interrupted.lease);
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(space.counts().waits.load(), 2u) << "the slices of a wait are one wait";
  EXPECT_EQ(space.counts().wait_timeouts.load(), 1u) << "its time was not over";
  EXPECT_EQ(space.counts().misses.load(), 1u) << "an interrupted caller makes nothing";
  ::kill(maker, SIGKILL);
  ::waitpid(maker, nullptr, 0);
  EXPECT_TRUE(space.lease("k", soon()).lease);
  ::close(ready[0]), ::close(ready[1]);
}

TEST_F(BlobSpaceTest, AThreadDoesNotWaitForItsOwnLease) {
  Service service(options());
  BlobSpace& space = service.blobs().open({"s", ""});
  auto first = space.lease("k", soon());
  ASSERT_TRUE(first.lease);
  const auto again = space.lease("k", base::Deadline::never());
  EXPECT_FALSE(again.found || again.lease);
  BlobSpace::Leased of_other;
  std::thread waiting([&] { of_other = space.lease("k", soon()); });
  std::string why;
  space.put("k", "made", std::move(first.lease), why);
  waiting.join();
  EXPECT_EQ(of_other.found, "made");
}

TEST_F(BlobSpaceTest, ALeaseThatEndsWithoutABlobIsTheNextCallers) {
  Service service(options());
  BlobSpace& space = service.blobs().open({"s", ""});
  ASSERT_TRUE(space.lease("k", soon()).lease) << "and ends here";
  EXPECT_TRUE(space.lease("k", soon()).lease);
}

TEST_F(BlobSpaceTest, BlobsThatAreStoredBehindTheCallerAreFoundAtOnce) {
  {
    Service service(options());
    BlobSpace& space = service.blobs().open(behind());
    for (int i = 0; i < 200; ++i) {
      const std::string key = "k" + std::to_string(i);
      EXPECT_EQ(put(space, key, "content of " + key), BlobSpace::Put::queued);
      EXPECT_EQ(space.get(key), "content of " + key);
    }
    EXPECT_EQ(put(space, "k0", "other"), BlobSpace::Put::queued) << "replaces what was put before";
    EXPECT_TRUE(space.flush(soon()));
    EXPECT_EQ(space.counts().puts.load(), 201u);
    EXPECT_EQ(put(space, "k1", "content of k1"), BlobSpace::Put::queued);
    EXPECT_EQ(space.list().size(), 200u);
    EXPECT_EQ(space.counts().puts_present.load(), 1u);
    EXPECT_EQ(space.counts().puts_skipped.load(), 0u);
    EXPECT_EQ(put(space, "last", noise(1 << 20)), BlobSpace::Put::queued);
    EXPECT_EQ(put(space, "k2", "gone"), BlobSpace::Put::queued);
    EXPECT_TRUE(space.erase("k2"));
  }
  Service service(options());
  BlobSpace& space = service.blobs().open({"s", ""});
  EXPECT_EQ(space.get("k0"), "other");
  EXPECT_EQ(space.get("k2"), std::nullopt);
  EXPECT_TRUE(space.get("last") == noise(1 << 20)) << "the end of the service waits for the queue";
}

TEST_F(BlobSpaceTest, AnotherProcessGetsTheLeaseOrTheBlobOfAQueuedPut) {
  { Service service(options()); }
  Service service(options());
  BlobSpace& space = service.blobs().open(behind());
  auto got = space.lease("k", soon());
  ASSERT_TRUE(got.lease);
  const pid_t waiting = child([&] {
    Service own(options());
    return own.blobs().open({"s", ""}).lease("k", soon()).found == "made";
  });
  std::string why;
  EXPECT_EQ(space.put("k", "made", std::move(got.lease), why), BlobSpace::Put::queued);
  EXPECT_TRUE(succeeded(waiting));
}

TEST_F(BlobSpaceTest, AForkedChildHasNoQueue) {
  Service service(options());
  BlobSpace& space = service.blobs().open(behind());
  ASSERT_EQ(put(space, "parent", "p"), BlobSpace::Put::queued);
  EXPECT_TRUE(succeeded(child([&] {
    return space.flush(soon()) && put(space, "child", "c") == BlobSpace::Put::queued &&
           space.get("child") == "c" && space.flush(soon());
  })));
  EXPECT_EQ(space.get("parent"), "p");
  EXPECT_EQ(space.get("child"), "c");
}

TEST_F(BlobSpaceTest, ASpaceKeepsWithinItsBudgetAndLeavesOthersAlone) {
  Service service(options());
  BlobSpace& kept = service.blobs().open({"kept", ""});
  BlobSpace& space = service.blobs().open({"s", "", 1 << 20});
  std::string content = noise(64 << 10);
  put(kept, "k", content);
  for (int i = 0; i < 64; ++i) {
    content[0] = static_cast<char>(i);
    ASSERT_EQ(put(space, std::to_string(i), content), BlobSpace::Put::stored);
  }
  std::uint64_t bytes = 0;
  for (const auto& listed : space.list()) bytes += listed.stored_bytes;
  EXPECT_LE(bytes, 1u << 20);
  EXPECT_GE(bytes, 1u << 19);
  EXPECT_GT(space.counts().evictions.load(), 0u);
  EXPECT_TRUE(space.get("63")) << "the youngest stay";
  EXPECT_FALSE(space.get("0"));
  EXPECT_TRUE(kept.get("k"));
}

TEST_F(BlobSpaceTest, AMissAfterTheSealIsCountedNamedAndMayBeRefused) {
  Options sealed = options();
  sealed.mode = Mode::sealed;
  Service service(sealed);
  BlobSpace& counting = service.blobs().open({"s", ""});
  BlobSpace& refusing = service.blobs().open({"s", "strict", 0, SealedMiss::refuse});
  put(refusing, "there", "x");
  service.seal();
  EXPECT_EQ(counting.get("k"), std::nullopt);
  EXPECT_EQ(counting.counts().sealed_misses.load(), 1u);
  ASSERT_FALSE(lines_.empty());
  EXPECT_NE(lines_.back().find("blob 'k' of space s is in no store"), std::string::npos) << lines_.back();
  EXPECT_EQ(refusing.get("there"), "x");
  try {
    refusing.get("k");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::not_ready);
    EXPECT_STREQ(error.what(), "sealed: blob 'k' of space s is in no store; make it before the seal");
  }
}

/// A program that knows nothing of kiln never calls seal().
TEST_F(BlobSpaceTest, AMissInModeSealedCountsBeforeTheSealToo) {
  Options sealed = options();
  sealed.mode = Mode::sealed;
  Service service(sealed);
  EXPECT_EQ(service.blobs().open({"s", ""}).get("unsealed"), std::nullopt);
  ASSERT_FALSE(lines_.empty());
  EXPECT_NE(lines_.back().find("blob 'unsealed' of space s is in no store"), std::string::npos)
      << lines_.back();
  BlobSpace& refusing = service.blobs().open({"s", "strict", 0, SealedMiss::refuse});
  EXPECT_THROW(refusing.get("unsealed"), Error);
  EXPECT_THROW(refusing.lease("unsealed", soon()), Error);
  EXPECT_EQ(service.blobs().open({"s", ""}).counts().sealed_misses.load(), 1u);
  EXPECT_EQ(refusing.counts().sealed_misses.load(), 2u);
}

TEST_F(BlobSpaceTest, InModeWarnEachMissAfterTheSealIsNamedAndNoneIsCounted) {
  Options warn = options();
  warn.mode = Mode::warn;
  Service service(warn);
  BlobSpace& strict = service.blobs().open({"s", "", 0, SealedMiss::refuse});
  const auto told = [&] {
    return std::count_if(lines_.begin(), lines_.end(), [](const std::string& line) {
      return line.find("blob 'k' of space s was not in the cache after the seal") != std::string::npos;
    });
  };
  EXPECT_EQ(strict.get("k"), std::nullopt);
  EXPECT_EQ(told(), 0) << "not sealed yet";
  service.seal();
  EXPECT_EQ(strict.get("k"), std::nullopt);
  EXPECT_EQ(strict.get("k"), std::nullopt);
  EXPECT_EQ(told(), 2) << "each one";
  EXPECT_EQ(strict.counts().sealed_misses.load(), 0u);
}

TEST_F(BlobSpaceTest, TheCountsOfAllProcessesAddUpInTheStore) {
  { Service service(options()); }
  const auto counted = [&] {
    std::map<std::string, std::uint64_t> out;
    const auto values = tally_of_space(tree_.at("cache"), "s")->read();
    std::size_t i = 0;
    for (const BlobCounter& counter : blob_counters()) out[counter.name] = values[i++];
    return out;
  };
  {
    Service service(options());
    BlobSpace& space = service.blobs().open({"s", "v1"});
    space.get("k");
    put(space, "k", "one");
    space.get("k");
    EXPECT_TRUE(succeeded(child([&] {  // it adds its own counts, and not its parent's once more
      space.get("k");
      return space.flush(soon());
    })));
    EXPECT_EQ(counted()["hits"], 1u) << "of the child alone";
    service.blobs().open({"s", "v2"}).get("k");
  }
  auto counts = counted();
  EXPECT_EQ(counts["hits"], 2u);
  EXPECT_EQ(counts["misses"], 2u);
  EXPECT_EQ(counts["puts"], 1u);
  EXPECT_EQ(counts["bytes_read"], 6u);
  {
    Service service(options());
    put(service.blobs().open(behind()), "k", "stored behind its caller");
  }
  EXPECT_EQ(counted()["puts"], 2u) << "also when the put ends after the space";
}

TEST_F(BlobSpaceTest, WithoutAStoreAPutIsSkippedAndSaysWhy) {
  Service service(options());
  service.state().stores.use_places({});
  BlobSpace& space = service.blobs().open({"s", ""});
  std::string why;
  EXPECT_EQ(space.put("k", "x", nullptr, why), BlobSpace::Put::skipped);
  EXPECT_EQ(why, "there is no store that this process may write");
  EXPECT_EQ(space.get("k"), std::nullopt);
  EXPECT_FALSE(space.erase("k"));
}

}  // namespace
}  // namespace kiln::runtime
