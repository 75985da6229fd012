// Puts on a disk that fails. The result of each put is true in a new process, also after the next put. No
// acknowledged record is lost, no wrong record is read, and the store works when the disk works again.
#include "tests/fault/store/fixture.hpp"

namespace kiln::cache::test {
namespace {

struct Fault {
  const char* name;
  const char* rules;  // armed after the store was opened
  bool no_space;      // the put must return `full`
  bool persists;      // the disk stays broken until disarmed
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

class PutFault : public FaultFixture, public ::testing::WithParamInterface<Fault> {};

constexpr std::uint32_t kBefore = 6, kDuring = 8;

TEST_P(PutFault, ClaimsOnlyWhatAFreshProcessFinds) {
  const Fault& fault = GetParam();
  {
    const auto store = open();
    for (std::uint32_t number = 0; number < kBefore; ++number) ASSERT_EQ(put(*store, number), Put::stored);
  }
  Shared<std::atomic<std::uint64_t>> fired;
  const int status = child([&] {
    const auto store = open();
    check(*store);
    kiln_fault_arm(fault.rules);
    for (std::uint32_t number = kBefore; number < kBefore + kDuring; ++number) {
      put(*store, number);
      check(*store);
      if (check_afresh() != 0) return 2;
    }
    *fired = kiln_fault_fired();
    kiln_fault_arm(nullptr);  // the disk works again
    for (std::uint32_t number = kBefore; number < kBefore + kDuring; ++number)
      base::poll_until(soon(), [&] {  // after a failure, healing pauses
        put(*store, number);
        return promises_->acknowledged[number].load();
      });
    check(*store);
    return 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_GE(*fired, 1u) << "the fault was never injected";
  EXPECT_EQ(check_afresh(), 0);
  report(fault.name, {{"puts", promises_->puts},
                      {"refused", promises_->failed + promises_->full},
                      {"reads", promises_->reads},
                      {"injected", *fired},
                      {"lost", promises_->lost},
                      {"wrong", promises_->wrong}});
  EXPECT_EQ(promises_->lost, 0u);
  EXPECT_EQ(promises_->wrong, 0u);
  if (fault.no_space) {
    EXPECT_EQ(promises_->failed, 0u) << "lack of space is said to be that";
    EXPECT_GE(promises_->full, fault.persists ? kDuring : 1u);
  }
  for (std::uint32_t number = 0; number < kBefore + kDuring; ++number)
    EXPECT_TRUE(promises_->acknowledged[number]) << number << ": not usable once the disk was";
}

INSTANTIATE_TEST_SUITE_P(
    Disk, PutFault,
    ::testing::Values(
        Fault{"EIO on a data write", "data@data.mdb:1:EIO", false, false},
        Fault{"EIO on every data write", "data@data.mdb:1+:EIO", false, true},
        Fault{"a short data write", "data@data.mdb:1:short", false, false},
        Fault{"a data write done but reported as failed", "data@data.mdb:1:after=EIO", false, false},
        Fault{"EIO on a sync", "sync@data.mdb:1:EIO", false, false},
        Fault{"EIO on every sync", "sync@data.mdb:1+:EIO", false, true},
        Fault{"a sync done but reported as failed", "sync@data.mdb:1:after=EIO", false, false},
        Fault{"EIO on the meta write", "meta@data.mdb:1:EIO", false, false},
        Fault{"EIO on every meta write", "meta@data.mdb:1+:EIO", false, true},
        Fault{"a meta write done but reported as failed", "meta@data.mdb:1:after=EIO", false, false},
        Fault{"a short meta write", "meta@data.mdb:1:short", false, false},
        Fault{"a meta write whose undoing fails too", "meta@data.mdb:1:after=EIO;data@data.mdb:2:EIO", false,
              false},
        Fault{"ENOSPC on a data write", "data@data.mdb:1:ENOSPC", true, false},
        Fault{"ENOSPC on every data write", "data@data.mdb:1+:ENOSPC", true, true},
        Fault{"EDQUOT on every data write", "data@data.mdb:1+:EDQUOT", true, true},
        Fault{"EFBIG on every data write", "data@data.mdb:1+:EFBIG", true, true}),
    [](const auto& row) {
      std::string name = row.param.name;
      for (char& c : name)
        if (c == ' ') c = '_';
      return name;
    });

/// Faults while the file is created: no process ever sees a half-made file.
class CreationFault : public FaultFixture, public ::testing::WithParamInterface<const char*> {};

TEST_P(CreationFault, LeavesNothingThatTheNextProcessTripsOver) {
  Shared<std::atomic<std::uint64_t>> fired;
  const int status = child([&] {
    kiln_fault_arm(GetParam());
    bool opened = false;
    try {
      put(*open(), 0);
      opened = true;
    } catch (const std::exception&) {
    }
    *fired = kiln_fault_fired();
    kiln_fault_arm(nullptr);
    if (opened) return check_afresh();
    return 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_GE(*fired, 1u) << "the fault was never injected";
  const auto store = open();
  put(*store, 1);
  EXPECT_TRUE(promises_->acknowledged[1]);
  EXPECT_EQ(check_afresh(), 0);
  EXPECT_EQ(promises_->lost + promises_->wrong, 0u);
}

INSTANTIATE_TEST_SUITE_P(Disk, CreationFault,
                         ::testing::Values("mkdir:1:ENOSPC", "mkdir:2:EDQUOT", "create@data.mdb:1:ENOSPC",
                                           "data@data.mdb:1:ENOSPC", "data@data.mdb:1:short",
                                           "data@data.mdb:1:EIO", "sync@data.mdb:1:EIO",
                                           "link@data.mdb:1:EIO", "link@data.mdb:1+:EACCES;rename:1:EIO",
                                           "mmap@data.mdb:1+:ENOMEM"));

}  // namespace
}  // namespace kiln::cache::test
