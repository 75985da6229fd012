// Blobs on bad disks: no room in the middle of puts, damage, and processes that are killed while they put.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#include <random>

#include "base/file.hpp"
#include "support/nightly.hpp"
#include "tests/fault/blob/fixture.hpp"

namespace kiln::runtime::test {
namespace {

constexpr int kKeys = 12;

class BlobDisk : public BlobFault {
 protected:
  /// Version 0 or 1 of a blob. It has up to 40 KB.
  static std::string content_of(int key, int version) {
    std::string out = noise(static_cast<std::size_t>(key * 3571 % 40'000));
    for (char& c : out) c = static_cast<char>(c ^ version);
    return out + std::to_string(key) + '.' + std::to_string(version);
  }
  void put_all(int version) const {
    Service service(options());
    for (int key = 0; key < kKeys; ++key)
      ASSERT_EQ(put(space_of(service), std::to_string(key), content_of(key, version)),
                BlobSpace::Put::stored);
  }
  /// Puts the first versions again.
  void put_back() const {
    Service service(options());
    for (int key = 0; key < kKeys; ++key)
      EXPECT_NE(put(space_of(service), std::to_string(key), content_of(key, 0)), BlobSpace::Put::skipped);
  }
  /// How many blobs are there. Each must be one of its two versions.
  int count_right() const {
    Service service(options());
    int out = 0;
    for (int key = 0; key < kKeys; ++key) {
      const auto got = space_of(service).get(std::to_string(key));
      if (!got) continue;
      ++out;
      EXPECT_TRUE(got->view == content_of(key, 0) || got->view == content_of(key, 1)) << key;
    }
    return out;
  }
  void write_file(const std::string& bytes) const {
    const base::Fd fd(::open(data_file().c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
    ASSERT_EQ(::write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
};

TEST_F(BlobDisk, WithoutRoomAPutIsSkippedAndNothingIsTorn) {
  put_all(0);
  for (const char* rule : {"data@data.mdb:3+:ENOSPC", "meta@data.mdb:2+:ENOSPC", "sync@data.mdb:2+:EIO",
                           "data@data.mdb:5+:EDQUOT", "data@data.mdb:2+:short"}) {
    Children children;
    children.start([&] {
      kiln_fault_arm(rule);
      Service service(options());
      int skipped = 0;
      for (int key = 0; key < kKeys; ++key)
        skipped += put(space_of(service), std::to_string(key), content_of(key, 1)) == BlobSpace::Put::skipped;
      return skipped > 0 || std::string(rule).ends_with("short") ? 0 : 1;
    });
    EXPECT_EQ(children.wait(), std::vector<int>{0}) << rule;
    const int there = count_right();
    EXPECT_TRUE(there == kKeys || std::string(rule).starts_with("sync")) << rule << ": " << there;
    put_back();
  }
}

TEST_F(BlobDisk, AFullSmallDiskLosesNothingThatWasStored) {
  Children children;
  children.start([&] {
    if (::mkdir(tree_.at("cache").c_str(), 0700) != 0) return 1;
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("kiln", tree_.at("cache").c_str(), "tmpfs", 0, "size=2m,mode=0700") != 0)
      return 77;
    Service service(options());
    BlobSpace& space = space_of(service);
    std::set<int> stored;
    int skipped = 0;
    const std::string bytes = noise(100'000);
    for (int i = 0; i < 40; ++i)
      put(space, std::to_string(i), bytes + std::to_string(i)) == BlobSpace::Put::stored
          ? void(stored.insert(i))
          : void(++skipped);
    if (stored.empty() || skipped == 0) return 2;
    Service other(options());
    for (const int i : stored)
      if (space_of(other).get(std::to_string(i)) != bytes + std::to_string(i)) return 3;
    const auto first = std::to_string(*stored.begin());
    if (!space.erase(first)) return 4;
    return space.get(first) ? 5 : 0;
  });
  const int status = children.wait().front();
  if (status == 77) GTEST_SKIP() << "a tmpfs cannot be mounted here";
  EXPECT_EQ(status, 0);
}

TEST_F(BlobDisk, DamagedBytesAreMissesAndPutsHeal) {
  put_all(0);
  const std::string good = base::read_file(data_file())->bytes;
  std::mt19937 random(5);
  const int rounds = ci_or_night(12, 400);
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    std::string bytes = good;
    const auto any = [&](std::size_t below) { return random() % below; };
    switch (round % 4) {
      case 0:  // a few flipped bits
        for (int i = 0; i < 8; ++i) bytes[any(bytes.size())] ^= static_cast<char>(1u << any(8));
        break;
      case 1:  // a page of zeros, beyond the meta pages
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>((2 + any(bytes.size() / 4096 - 2)) * 4096),
                    4096, '\0');
        break;
      case 2:  // two pages exchanged
      {
        const std::size_t pages = bytes.size() / 4096, a = 2 + any(pages - 2), b = 2 + any(pages - 2);
        for (std::size_t i = 0; i < 4096; ++i) std::swap(bytes[a * 4096 + i], bytes[b * 4096 + i]);
        break;
      }
      default:  // cut short
        bytes.resize(4096 * 2 + any(bytes.size() - 4096 * 2));
    }
    write_file(bytes);
    Children children;
    children.start([&] {
      count_right();
      if (HasFailure()) return 1;
      Service service(options());
      for (int key = 0; key < kKeys; ++key) put(space_of(service), std::to_string(key), content_of(key, 1));
      return 0;
    });
    EXPECT_EQ(children.wait(), std::vector<int>{0}) << "round " << round;
    EXPECT_EQ(count_right(), kKeys) << "round " << round;
    write_file(good);
  }
}

TEST_F(BlobDisk, APutKilledAtAnyStepLeavesTheOldOrTheNewBlob) {
  const std::string old = content_of(11, 0), fresh = content_of(11, 1);
  for (const char* action : {"kill", "kill-after"}) kill_puts("any", action, ci_or_night(3, 1), old, fresh);
  kill_puts("data", "kill-half", ci_or_night(3, 1), old, fresh);
}

TEST_F(BlobDisk, ALargeBlobKilledWhileItReplacesAnotherIsOneOfBoth) {
  const std::string old(cache::kBlobPart + 5, 'o'), fresh(cache::kBlobPart + 7, 'f');
  // A put of three records makes some 70 calls, so CI dies in each of the three and between them.
  kill_puts("any@data.mdb", "kill", ci_or_night(17, 1), old, fresh);
  Service service(options());
  put(space_of(service), "k", "small");
  EXPECT_EQ(found("k"), "small");
}

}  // namespace
}  // namespace kiln::runtime::test
