// Damage and failed writes in a store that is full, shared or marked.
// It heals once, and only the damaged part.
#include <lmdb.h>
#include <sys/resource.h>

#include "cache/store/tally.hpp"
#include "tests/fault/damage/heal_fixture.hpp"
#include "tests/support/processes.hpp"
#include "tests/support/shifted_clock.hpp"

namespace kiln::cache::test {
namespace {

constexpr std::uint64_t kHealCap = std::uint64_t{8} << 20;

class Healing : public HealFixture {};

TEST_F(Healing, ADamagedStoreAtItsCapHealsAtTheNextPut) {
  const std::uint32_t count = fill_to_the_cap(kHealCap);
  damage_leaves_of(count / 2);
  const ino_t before = inode();
  EXPECT_EQ(child([&] {
              const auto store = open_with_cap(kHealCap);
              const PutResult got = store->put(record_of(5000, kLarge));
              if (got.put != Put::stored) return std::fprintf(stderr, "%s\n", got.detail.c_str()), 1;
              if (got.notice.empty()) return 2;
              return holds(*store, 5000, kLarge) ? 0 : 3;
            }),
            0);
  EXPECT_NE(inode(), before);
  EXPECT_EQ(inode_of(damaged_file()), before);
  EXPECT_TRUE(open_with_cap(kHealCap)->verify().damaged.empty());
}

TEST_F(Healing, AUseThatLiesInADirtyPageOfItsOwnDoesNotCrashThePut) {
  ASSERT_EQ(child([&] { return put(*open(), 1) == Put::stored ? 0 : 1; }), 0);
  const std::string value(3000, 'x');
  ASSERT_EQ(child([&] {  // a file that is valid for LMDB
              MDB_env* env = nullptr;
              MDB_txn* txn = nullptr;
              MDB_dbi dbi = 0;
              const std::string key = use_key(key_of(5));
              MDB_val k{key.size(), const_cast<char*>(key.data())};
              MDB_val v{value.size(), const_cast<char*>(value.data())};
              return mdb_env_create(&env) || mdb_env_set_mapsize(env, 1 << 24) ||
                     mdb_env_open(env, data_file().c_str(), MDB_NOSUBDIR | MDB_NOLOCK, 0600) ||
                     mdb_txn_begin(env, nullptr, 0, &txn) || mdb_dbi_open(txn, nullptr, 0, &dbi) ||
                     mdb_put(txn, dbi, &k, &v, 0) || mdb_txn_commit(txn);
            }),
            0);
  const std::string file = base::read_file(data_file())->bytes;
  constexpr std::uint16_t kDirtyOverflow = 0x14;
  int damaged = 0;
  for (std::size_t at = 2 * kPage; at + kPage <= file.size(); at += kPage)
    if (file.compare(at + 16, value.size(), value) == 0)
      poke(at + 10, &kDirtyOverflow, sizeof kDirtyOverflow), ++damaged;
  ASSERT_EQ(damaged, 1);

  for (const std::uint32_t number : {5u, 6u})
    EXPECT_EQ(child([&] { return put(*open(), number) == Put::stored ? 0 : 1; }), 0) << number;
  EXPECT_EQ(check_afresh(), 0);
  EXPECT_EQ(promises_->lost + promises_->wrong, 0u);
  EXPECT_TRUE(open()->verify().damaged.empty());
}

TEST_F(Healing, AnEvictionWhoseSyncFailsMovesEverythingToAFreshFile) {
  fill_to_the_cap(kHealCap);
  const ino_t before = inode();
  ASSERT_EQ(child([&] {
              const auto store = open_with_cap(kHealCap);
              kiln_fault_arm("sync@data.mdb:1:EIO");  // the eviction syncs first
              store->put(record_of(5000, kLarge));
              if (kiln_fault_fired() != 1) return 1;
              kiln_fault_arm(nullptr);
              return store->put(record_of(5001, kLarge)).put == Put::stored ? 0 : 2;
            }),
            0);
  EXPECT_NE(inode(), before) << "the kernel says only once that it lost pages";
  const auto store = open_with_cap(kHealCap);
  EXPECT_TRUE(holds(*store, 5001, kLarge));
  EXPECT_TRUE(store->verify().damaged.empty());
}

TEST_F(Healing, AWriteOfUsesWhoseSyncFailsMovesEverythingToAFreshFile) {
  ASSERT_EQ(child([&] { return put(*open(), 1) == Put::stored ? 0 : 1; }), 0);
  const ino_t before = inode();
  EXPECT_EQ(child([&] {
              const auto store = open();
              kiln_shift_clock(7200);  // the stored use is older than an hour: it is written again
              if (!holds(*store, 1, kImage)) return 1;
              kiln_fault_arm("sync@data.mdb:1:EIO");
              store->write_uses(soon());
              if (kiln_fault_fired() != 1) return 2;
              kiln_fault_arm(nullptr);
              if (open_read_only()->verify().damaged.size() != 1) return 3;
              return put(*store, 2) == Put::stored ? 0 : 4;
            }),
            0);
  EXPECT_NE(inode(), before);
  EXPECT_EQ(check_afresh(), 0);
  EXPECT_EQ(promises_->lost + promises_->wrong, 0u);
}

TEST_F(Healing, ManyProcessesThatMeetOneDamageRewriteTheFileOnce) {
  constexpr int kProcesses = 16;
  ASSERT_EQ(child([&] {
              const auto store = open();
              for (std::uint32_t number = 0; number < 100; ++number)
                if (put(*store, number) != Put::stored) return 1;
              return 0;
            }),
            0);
  damage_leaves_of(3);
  const ino_t damaged = inode();
  const std::string bytes = base::read_file(data_file())->bytes;
  Shared<fault::Barrier> start;
  Shared<std::atomic<int>> rewrites;
  fault::Children children;
  for (std::uint32_t i = 0; i < kProcesses; ++i)
    children.start([&, i] {
      const auto store = open();
      start->wait(kProcesses);
      const PutResult got = store->put(record_of(500 + i));
      *rewrites += got.notice.empty() ? 0 : 1;
      if (got.put != Put::stored) std::fprintf(stderr, "%s\n", got.detail.c_str());
      return got.put == Put::stored ? 0 : 1;
    });
  EXPECT_EQ(children.wait(), std::vector<int>(kProcesses));
  EXPECT_EQ(*rewrites, 1);
  EXPECT_EQ(inode_of(damaged_file()), damaged);
  EXPECT_TRUE(base::read_file(damaged_file())->bytes == bytes) << "what was set aside is not the damaged one";
  const auto store = open();
  for (std::uint32_t i = 0; i < kProcesses; ++i) EXPECT_TRUE(holds(*store, 500 + i)) << i;
  EXPECT_TRUE(store->verify().damaged.empty());
  report("16 processes meet one damage", {{"rewrites", static_cast<std::uint64_t>(*rewrites)}});
}

TEST_F(Healing, AChangedModeDoesNotMakeAnyoneRewrite) {
  ASSERT_EQ(child([&] { return put(*open(), 1) == Put::stored ? 0 : 1; }), 0);
  const ino_t before = inode();
  for (const std::string& path : {directory(), directory() + "/v1", data_file()})
    ASSERT_EQ(::chmod(path.c_str(), 0700), 0);
  EXPECT_EQ(child([&] {
              const PutResult got = open()->put(record_of(2));
              return got.put == Put::stored && got.notice.empty() ? 0 : 1;
            }),
            0);
  EXPECT_EQ(inode(), before);
  EXPECT_FALSE(exists(damaged_file()));
  EXPECT_TRUE(open()->verify().damaged.empty());
}

TEST_F(Healing, CountersUnderAFileSizeLimitDoNotKill) {
  open();
  const std::vector<std::uint64_t> deltas{1};
  ASSERT_TRUE(Tally(directory() + "/v1").add(deltas));
  EXPECT_EQ(child([&] {
              ::signal(SIGXFSZ, SIG_DFL);
              const rlimit none{0, 0};
              if (::setrlimit(RLIMIT_FSIZE, &none) != 0) return 1;
              return Tally(directory() + "/v1").add(deltas) ? 2 : 0;
            }),
            0);
  EXPECT_EQ(Tally(directory() + "/v1").read()[0], 1u);
}

}  // namespace
}  // namespace kiln::cache::test
