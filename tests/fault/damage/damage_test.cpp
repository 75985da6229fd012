// Damaged files: no wrong record is served, no process crashes, and the next publish heals the store.
#include <fcntl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <random>

#include "base/fd.hpp"
#include "kiln/error.hpp"
#include "support/nightly.hpp"
#include "tests/cache/fixture.hpp"

namespace kiln::cache::test {
namespace {

constexpr std::uint32_t kKeys = 30;

std::size_t size_of(std::uint32_t number) { return number % 3 == 0 ? 500 + number : number * 3571 % 20'000; }

struct Outcome {
  int crashed = 0, wrong = 0, unhealed = 0, damaged = 0, right = 0, left = 0;
};

class DamageTest : public StoreFixture {
 protected:
  void SetUp() override {
    // A store with a history: freed pages, a tree of more than one level, a free list that is in use.
    const auto store = open();
    for (std::uint32_t number = 0; number < 2 * kKeys; ++number)
      ASSERT_EQ(store->put(with_key(key_of(number % kKeys), record_with(number))).put, Put::stored);
    for (std::uint32_t number = 0; number < kKeys; ++number)
      ASSERT_EQ(store->put(record_of(number, size_of(number))).put, Put::stored);
    whole_ = base::read_file(data_file())->bytes;
  }
  static Record record_with(std::uint32_t number) {
    Record record = record_of(number, 9000);
    record.key_text = "an older one " + std::to_string(number);
    return record;
  }

  /// use() returns the outcome of one process with the file:
  /// - 0: all records were there
  /// - 1: some records were missed, and puts healed the file
  /// - 2: a wrong record
  /// - 3: not healed
  /// - 4: healed by gc
  static int not_healed(const std::string& why) {
    std::printf("not healed: %s\n", why.c_str());
    std::fflush(stdout);
    return 3;
  }
  int use() const {
    const auto store = open();
    bool missed = false;
    for (std::uint32_t number = 0; number < kKeys; ++number) {
      const Record expected = record_of(number, size_of(number));
      const auto got = store->get(key_of(number), expected.key_text, soon());
      if (got.record && !same(*got.record, expected)) return 2;
      missed = missed || !got.record;
    }
    store->find(key_of(7).specialisation, soon());
    for (std::uint32_t number = 0; number < kKeys; ++number) {
      const auto put = store->put(record_of(number, size_of(number)));
      if (put.put != Put::stored && put.put != Put::present) return not_healed("put: " + put.detail);
    }
    if (const auto put = store->put(record_of(99, 30'000)); put.put != Put::stored)
      return not_healed("the last put: " + put.detail);
    for (std::uint32_t number = 0; number < kKeys; ++number)
      if (!holds(*store, number, size_of(number))) return not_healed("missed " + std::to_string(number));
    if (!holds(*store, 99, 30'000)) return not_healed("missed the last");
    if (!store->verify().damaged.empty()) {  // no put touched this damage, so gc rewrites everything
      store->gc(std::uint64_t{1} << 30, soon());
      const auto left = store->verify().damaged;
      if (!left.empty()) return not_healed("after gc: " + left[0].key + ' ' + left[0].what);
      for (std::uint32_t number = 0; number < kKeys; ++number)
        if (!holds(*store, number, size_of(number)))
          return not_healed("missed after gc " + std::to_string(number));
      return 4;
    }
    return missed ? 1 : 0;
  }

  /// Runs `use` on each damaged file, in a child, so that a crash does not end the test.
  Outcome outcome_of(int rounds, const std::function<std::string(int)>& damaged_file) {
    Outcome out;
    for (int round = 0; round < rounds; ++round) {
      write(damaged_file(round));
      const int status = in_child([&] {
        const int null = ::open("/dev/null", O_WRONLY);
        ::dup2(null, 2);  // each damaged file causes a warning
        try {
          return use();
        } catch (const Error&) {
          return 3;
        }
      });
      switch (status) {
        case 0:
          ++out.right;
          break;
        case 1:
          ++out.damaged;
          break;
        case 2:
          ++out.wrong;
          break;
        case 3:
          ++out.unhealed;
          break;
        case 4:
          ++out.left;
          break;
        default:
          ++out.crashed;
      }
      if (status == 2 || status == 3 || status > 4) {
        const std::string keep = "/tmp/kiln-damage-" + std::to_string(round);
        if (std::getenv("KILN_KEEP_DAMAGED")) base::write_file(keep, damaged_file(round));
        ADD_FAILURE() << "round " << round << ": status " << status;
      }
      ::unlink((data_file() + ".damaged").c_str());
    }
    std::printf(
        "FIGURES damage: %d files, %d healed by puts, %d as they were, %d with damage that only gc met, "
        "%d crashed, %d wrong, %d not healed\n",
        rounds, out.damaged, out.right, out.left, out.crashed, out.wrong, out.unhealed);
    return out;
  }
  void write(const std::string& bytes) const {
    const base::Fd fd(::open(data_file().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    ASSERT_EQ(::write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }

  static int rounds(int by_default) {
    const char* soak = std::getenv("KILN_SOAK_FLIPS");
    return soak ? std::atoi(soak) : by_default;
  }

  std::string whole_;
};

TEST_F(DamageTest, FlippedBitsOfAnyPage) {
  std::mt19937 random(11);
  const Outcome out = outcome_of(rounds(ci_or_night(200, 400)), [&](int) {
    std::string bytes = whole_;
    for (std::uint32_t flips = 1 + random() % 3; flips > 0; --flips)
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    return bytes;
  });
  EXPECT_GT(out.damaged, rounds(ci_or_night(200, 400)) / 10);
}

/// LMDB trusts these pages: headers, offsets, page numbers.
TEST_F(DamageTest, FlippedBitsOfMetaAndTreePages) {
  std::mt19937 random(12);
  std::vector<std::size_t> tree;
  for (std::size_t page = 0; page < whole_.size() / 4096; ++page)
    if (page < 2 || (whole_[page * 4096 + 10] & 0x03) != 0) tree.push_back(page * 4096);
  const Outcome out = outcome_of(rounds(ci_or_night(200, 400)), [&](int) {
    std::string bytes = whole_;
    for (std::uint32_t flips = 1 + random() % 3; flips > 0; --flips) {
      const std::size_t page = tree[random() % tree.size()];
      const std::size_t within = random() % 2 == 0 ? random() % 160 : random() % 4096;
      bytes[page + within] ^= static_cast<char>(1 << random() % 8);
    }
    return bytes;
  });
  EXPECT_GT(out.damaged, rounds(ci_or_night(200, 400)) / 10);
}

TEST_F(DamageTest, OverwrittenPages) {
  std::mt19937 random(13);
  outcome_of(rounds(ci_or_night(200, 400)) / 4, [&](int round) {
    std::string bytes = whole_;
    const std::size_t pages = bytes.size() / 4096, page = random() % pages, other = random() % pages;
    switch (round % 3) {
      case 0:
        bytes.replace(page * 4096, 4096, std::string(4096, '\0'));
        break;
      case 1:
        bytes.replace(page * 4096, 4096, whole_, other * 4096, 4096);
        break;
      default:
        for (int i = 0; i < 4096; ++i)
          bytes[page * 4096 + static_cast<std::size_t>(i)] = static_cast<char>(random());
    }
    return bytes;
  });
}

TEST_F(DamageTest, Truncation) {
  const int step = ci_or_night(4000, 2048);
  outcome_of(static_cast<int>(whole_.size()) / step, [&](int round) {
    return whole_.substr(0, static_cast<std::size_t>(round * step) + (round % 2) * 77);
  });
}

TEST_F(DamageTest, Garbage) {
  outcome_of(6, [](int round) { return std::string(std::size_t{1} << (4 * round), 'g'); });
}

TEST_F(DamageTest, OlderAndNewerFormatsAreMissesThatTheNextPublishReplaces) {
  outcome_of(4, [&](int round) {
    std::string bytes = whole_;
    for (std::size_t meta : {0, 4096}) {
      if (round == 0) bytes[meta + 20] = 2;  // LMDB's data version
      if (round == 1) bytes[meta + 20] = 0;
    }
    const std::string magic = "kilnrec1";
    for (std::size_t at = 0; round >= 2 && (at = bytes.find(magic, at)) != std::string::npos; ++at)
      bytes[at + 7] = round == 2 ? '0' : '2';
    return bytes;
  });
}

TEST_F(DamageTest, AStoreOfAnotherSchemaBesideIsLeftAlone) {
  const std::string newer = directory() + "/v2";
  ASSERT_EQ(::mkdir(newer.c_str(), 0700), 0);
  base::write_file(newer + "/data.mdb", "of a later kiln");
  const auto store = open();
  store->clear(soon());
  store->gc(0, soon());
  EXPECT_EQ(base::read_file(newer + "/data.mdb")->bytes, "of a later kiln");
}

TEST_F(DamageTest, TheDamagedFileIsKeptUntilTheNextGc) {
  std::string bytes = whole_;
  bytes.resize(bytes.size() - 4096);
  write(bytes);
  const auto store = open();
  EXPECT_EQ(store->put(record_of(99)).put, Put::stored);
  EXPECT_EQ(base::read_file(data_file() + ".damaged")->bytes, bytes);
  int intact = 0;
  for (std::uint32_t number = 0; number < kKeys; ++number) intact += holds(*store, number, size_of(number));
  EXPECT_GE(intact, static_cast<int>(kKeys) - 1);  // healing saves every record except those on the lost page
  store->gc(1 << 30, soon());
  EXPECT_FALSE(base::FileStamp::of(data_file() + ".damaged"));
}

TEST_F(DamageTest, AFileThatShrinksUnderAnOpenStoreIsAMissAndIsHealed) {
  const auto store = open();
  ASSERT_TRUE(holds(*store, 1, size_of(1)));
  ASSERT_EQ(::truncate(data_file().c_str(), 12'288), 0);
  int served = 0;
  for (std::uint32_t number = 0; number < kKeys; ++number) {
    const auto got = store->get(key_of(number), record_of(number).key_text, soon());
    served += got.record ? 1 : 0;
  }
  EXPECT_LT(served, static_cast<int>(kKeys));
  EXPECT_EQ(store->put(record_of(1, size_of(1))).put, Put::stored);
  EXPECT_TRUE(holds(*store, 1, size_of(1)));
}

TEST_F(DamageTest, VerifyNamesTheDamagedEntry) {
  const std::string image = record_of(5, size_of(5)).image.substr(2000, 64);
  std::string bytes = whole_;
  for (std::size_t at = bytes.find(image); at != std::string::npos; at = bytes.find(image, at + 1))
    bytes[at] ^= 1;
  ASSERT_NE(bytes, whole_);
  write(bytes);
  const auto found = open()->verify();
  ASSERT_EQ(found.damaged.size(), 1u);
  EXPECT_EQ(found.damaged[0].key, key_of(5).hex());
  EXPECT_EQ(found.entries, kKeys - 1);
}

}  // namespace
}  // namespace kiln::cache::test
