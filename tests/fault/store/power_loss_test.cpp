// Power losses. A run is recorded. For a loss at each of its calls, the test makes
// states that the disk may have, and opens them.
// KILN_SOAK_STATES is the number of states to draw (200000 for a
// soak). The figure counts the different states.
#include <filesystem>
#include <fstream>
#include <unordered_set>

#include "kiln/error.hpp"
#include "support/nightly.hpp"
#include "tests/fault/store/fixture.hpp"
#include "tests/fault/store/power_loss.hpp"

namespace kiln::cache::test {
namespace {

constexpr std::uint32_t kLossKeys = 8, kPuts = 40, kNewNumber = 1000;

using Versions = std::map<std::uint32_t, std::uint32_t>;  // number -> newest acknowledged version

struct Findings {
  std::atomic<std::uint64_t> states, reads, unopened, lost, wrong, refused;
  std::uint64_t broken() const { return unopened + lost + wrong + refused; }
};

class PowerLoss : public StoreFixture {
 protected:
  PowerLoss() {
    const std::string memory = "/dev/shm";
    const char* before = std::getenv("TMPDIR");
    if (::access(memory.c_str(), W_OK) != 0) return;
    const std::string saved = before ? before : "";
    ::setenv("TMPDIR", memory.c_str(), 1);
    states_ = std::make_unique<base::TempDir>("kiln-power-loss-");
    before ? ::setenv("TMPDIR", saved.c_str(), 1) : ::unsetenv("TMPDIR");
  }
  void SetUp() override {
    if (!states_) states_ = std::make_unique<base::TempDir>("kiln-power-loss-");
  }

  /// Two processes, one after the other, put versions of kLossKeys keys. The first process creates the file.
  std::vector<Operation> recorded(const char* rules) {
    const std::string log = dir_.path() + "/log";
    for (std::uint32_t half = 0; half < 2; ++half) {
      const int status = child([&] {
        kiln_fault_record(directory().c_str(), log.c_str());
        kiln_fault_arm(rules);
        auto store = open();
        for (std::uint32_t i = half * kPuts / 2; i < (half + 1) * kPuts / 2; ++i) {
          const Put put = store->put(version_of(i % kLossKeys, i + 1)).put;
          if (put == Put::stored || put == Put::present) kiln_fault_mark(i + 1);
        }
        return 0;
      });
      EXPECT_EQ(status, 0);
    }
    return read_log(log);
  }

  void make(const Files& files) const {
    std::filesystem::remove_all(state_directory());
    for (const auto& [path, content] : files) {
      const std::string at = state_directory() + path.substr(directory().size());
      std::filesystem::create_directories(base::directory_of(at));
      std::ofstream(at, std::ios::binary) << content;
    }
  }
  std::string state_directory() const { return states_->path() + "/store"; }

  static void read_all(Store& store, const Versions& acknowledged, Findings& found) {
    for (std::uint32_t number = 0; number < kLossKeys; ++number) {
      const auto got = store.peek(key_of(number), soon());
      const auto at = acknowledged.find(number);
      const std::uint32_t at_least = at == acknowledged.end() ? 0 : at->second;
      ++found.reads;
      if (!got && at_least != 0) ++found.lost;
      if (!got) continue;
      if (!same(*got, version_of(number, version_in(*got)))) ++found.wrong;
      if (version_in(*got) < at_least) ++found.lost;
    }
  }

  /// Runs in a child, because a state that crashes it must not end the test.
  void check(const Files& files, const Versions& acknowledged, Findings& found) const {
    make(files);
    StoreOptions o = options();
    o.directory = state_directory();
    std::shared_ptr<Store> store;
    try {
      store = Store::open(o);
    } catch (const Error& error) {
      if (found.unopened++ == 0) std::fprintf(stderr, "a state does not open: %s\n", error.what());
      return;
    }
    read_all(*store, acknowledged, found);
    // A put takes free pages. Pages that are still needed must survive it.
    const PutResult put = store->put(record_of(kNewNumber));
    if (put.put != Put::stored || !holds(*store, kNewNumber)) {
      if (found.refused++ == 0) std::fprintf(stderr, "a put is refused: %s\n", put.detail.c_str());
    }
    read_all(*store, acknowledged, found);
  }

  /// Loses power at each call of the log. Makes about `budget` states in
  /// all, more of them where more is undecided.
  void replay(const std::vector<Operation>& log, Disk::Syncs syncs, std::uint64_t budget, Findings& found) {
    const auto weight = [](const Disk& disk) {
      return disk.undecided() == 0 ? 0 : std::min<std::uint64_t>(64, 2 * disk.undecided());
    };
    std::uint64_t weights = 0;
    Disk rehearsal(syncs);
    for (const Operation& operation : log) {
      rehearsal.issue(operation);
      weights += weight(rehearsal);
      rehearsal.complete(operation);
    }
    Disk disk(syncs);
    Versions acknowledged;
    std::mt19937 random(11);
    std::uint64_t owed = 0;
    for (const Operation& operation : log) {
      disk.issue(operation);
      owed += weight(disk) * budget;
      const std::uint64_t states = 1 + owed / weights;
      owed %= weights;
      const unsigned seed = random();
      const int status = child([&] {
        std::mt19937 choices(seed);
        std::unordered_set<std::size_t> tried;
        for (std::uint64_t i = 0; i < states; ++i) {
          const Files files = disk.after_power_loss(choices);
          std::size_t hash = 0;
          for (const auto& [path, content] : files)
            hash = hash * 31 + std::hash<std::string>()(path) + std::hash<std::string>()(content);
          if (!tried.insert(hash).second) continue;
          ++found.states;
          check(files, acknowledged, found);
        }
        return 0;
      });
      if (status != 0) ++found.unopened;
      disk.complete(operation);
      if (operation.head.kind == fault::Kind::mark) {
        const auto version = static_cast<std::uint32_t>(operation.head.offset);
        acknowledged[(version - 1) % kLossKeys] = version;
      }
    }
    EXPECT_FALSE(acknowledged.empty());
  }

  void replay_and_expect_nothing_broken(const char* fault, const char* rules) {
    const auto log = recorded(rules);
    const auto budget = configured("KILN_SOAK_STATES", static_cast<std::uint64_t>(ci_or_night(500, 1500)));
    Shared<Findings> found;
    replay(log, Disk::Syncs::honoured, budget, *found);
    const auto puts =
        std::count_if(log.begin(), log.end(), [](const auto& o) { return o.head.kind == fault::Kind::mark; });
    report(fault, {{"calls", log.size()},
                   {"acknowledged puts", static_cast<std::uint64_t>(puts)},
                   {"states", found->states},
                   {"reads", found->reads},
                   {"unopened", found->unopened},
                   {"lost", found->lost},
                   {"wrong", found->wrong},
                   {"refused", found->refused}});
    EXPECT_GT(found->states, budget / 3);
    EXPECT_EQ(found->broken(), 0u);
  }

  std::unique_ptr<base::TempDir> states_;
};

TEST_F(PowerLoss, LosesNothingAcknowledgedAtAnyCall) {
  replay_and_expect_nothing_broken("power loss", nullptr);
}

TEST_F(PowerLoss, LosesNothingAcknowledgedAfterAFailedSync) {
  replay_and_expect_nothing_broken("power loss after EIO on a sync", "fdatasync@data.mdb:5:EIO");
}

TEST_F(PowerLoss, LosesNothingAcknowledgedAfterAFailedMetaWrite) {
  replay_and_expect_nothing_broken("power loss after EIO on a meta write", "meta@data.mdb:5:after=EIO");
}

TEST_F(PowerLoss, LosesNothingAcknowledgedAfterAFailedDataWrite) {
  replay_and_expect_nothing_broken("power loss after EIO on a data write", "data@data.mdb:7:EIO");
}

TEST_F(PowerLoss, ADiskThatIgnoresSyncsIsFoundOut) {  // shows that the replay finds faults
  const auto log = recorded(nullptr);
  Shared<Findings> found;
  replay(log, Disk::Syncs::ignored, 200, *found);
  report("power loss on a disk that ignores syncs (must break)",
         {{"states", found->states}, {"broken", found->broken()}});
  EXPECT_GT(found->broken(), 10u);
}

}  // namespace
}  // namespace kiln::cache::test
