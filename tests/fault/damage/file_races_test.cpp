// Changes that other processes make to the file while LMDB has it open, and disks that hang.
#include <dlfcn.h>
#include <lmdb.h>

#include <filesystem>
#include <utility>

#include "tests/fault/damage/heal_fixture.hpp"
#include "tests/support/shifted_clock.hpp"

namespace {
/// The next call in this process runs the function once.
std::function<void()> before_open, before_commit;

void run_once(std::function<void()>& what) {
  if (const auto now = std::exchange(what, nullptr)) now();
}
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}
}  // namespace

// These two functions stand before LMDB's.
extern "C" int mdb_env_open(MDB_env* env, const char* path, unsigned flags, mdb_mode_t mode) {
  run_once(before_open);
  return next<int(MDB_env*, const char*, unsigned, mdb_mode_t)>("mdb_env_open")(env, path, flags, mode);
}
extern "C" int mdb_txn_commit(MDB_txn* txn) {
  run_once(before_commit);
  return next<int(MDB_txn*)>("mdb_txn_commit")(txn);
}

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

class FileRaces : public HealFixture {
 protected:
  void SetUp() override {
    ASSERT_EQ(child([&] { return put(*open(), 1) == Put::stored ? 0 : 1; }), 0);
  }
  /// Puts in a separate process and notes the results.
  int put_elsewhere(std::uint32_t from, std::uint32_t to) const {
    return child([&] {
      before_open = before_commit = nullptr;
      const auto store = open();
      for (std::uint32_t number = from; number < to; ++number)
        if (put(*store, number) != Put::stored) return 1;
      return 0;
    });
  }
  /// Open descriptors of this process to a data file that has been unlinked.
  static int stale_descriptors() {
    int out = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const std::string to = std::filesystem::read_symlink(entry.path(), gone).string();
      out += to.find("data.mdb") != std::string::npos && to.ends_with(" (deleted)");
    }
    return out;
  }
};

TEST_F(FileRaces, LmdbCreatesNoFileWhereTheLockedOneWasUnlinked) {
  EXPECT_EQ(child([&] {
              const auto store = open();
              bool unlinked = false, created = false, committing = false;
              before_open = [&] { unlinked = ::unlink(data_file().c_str()) == 0; };
              before_commit = [&] { committing = true, created = exists(data_file()); };
              store->put(record_of(3));
              if (!unlinked) return 1;
              if (created || (!committing && exists(data_file()))) return 2;
              before_commit = nullptr;
              return store->put(record_of(4)).put == Put::stored && holds(*store, 4) ? 0 : 3;
            }),
            0);
  EXPECT_TRUE(open()->verify().damaged.empty());
}

TEST_F(FileRaces, AFileReplacedBehindTheGateLosesNobodyElsesPuts) {
  promises_->acknowledged[1] = false;  // record 1 is lost with the file that is unlinked
  EXPECT_EQ(child([&] {
              const auto store = open();
              int first = -1, second = -1;
              before_open = [&] { first = ::unlink(data_file().c_str()) == 0 ? put_elsewhere(7, 8) : 99; };
              before_commit = [&] { second = put_elsewhere(20, 40); };
              store->put(record_of(3));
              // A put that notices the replaced file in time never commits, so before_commit did not run.
              if (std::exchange(before_commit, nullptr)) second = put_elsewhere(20, 40);
              return first != 0 ? 1 : second != 0 ? 2 : 0;
            }),
            0);
  EXPECT_EQ(check_afresh(), 0);
  EXPECT_EQ(promises_->puts, 22u);
  EXPECT_EQ(promises_->lost + promises_->wrong, 0u);
  report("file replaced behind the gate", {{"acknowledged", 21}, {"lost", promises_->lost}});
  EXPECT_TRUE(open()->verify().damaged.empty());
}

TEST_F(FileRaces, ADiskThatHangsDoesNotHangWhoeverClosesTheStore) {
  EXPECT_EQ(child([&] {
              auto store = open();
              kiln_shift_clock(7200);  // the stored use is older than an hour: it is written again
              if (!holds(*store, 1, kImage)) return 1;
              kiln_fault_arm("sync@data.mdb:1+:delay=5000");
              const auto begin = base::Clock::now();
              store.reset();
              const auto took = base::Clock::now() - begin;
              if (!base::poll_until(base::Deadline::after(3s), [] { return kiln_fault_seen() > 0; }))
                return 2;
              return took < 2s ? 0 : 3;
            }),
            0);
}

TEST_F(FileRaces, AReadOnlyStoreHoldsNoReplacedFile) {
  EXPECT_EQ(child([&] {
              const auto store = open_read_only();
              if (!holds(*store, 1, kImage)) return 1;
              if (child([&] { return open()->clear(soon()), 0; }) != 0) return 2;
              return base::poll_until(base::Deadline::after(3s), [] { return stale_descriptors() == 0; }) ? 0
                                                                                                          : 3;
            }),
            0);
}

TEST_F(FileRaces, AStoreThatOnlyMissedHoldsNoReplacedFile) {
  EXPECT_EQ(child([&] {
              StoreOptions o = options();
              o.upkeep = 50ms;
              const auto store = Store::open(o);
              if (holds(*store, 2)) return 1;
              if (child([&] { return open()->clear(soon()), 0; }) != 0) return 2;
              return base::poll_until(base::Deadline::after(3s), [] { return stale_descriptors() == 0; }) ? 0
                                                                                                          : 3;
            }),
            0);
}

}  // namespace
}  // namespace kiln::cache::test
