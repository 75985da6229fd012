// Every lock in a range is found, although the kernel names only one of them at a time.
#include <fcntl.h>

#include "cache/lock/gate.hpp"
#include "tests/cache/fixture.hpp"

namespace kiln::cache::test {
namespace {

TEST(LocksHeld, AllOfARangeAreFoundInOrder) {
  const base::TempDir dir("kiln-locks-test-");
  const std::string path = dir.path() + "/locks";
  base::write_file(path, "", 0600);
  std::vector<base::Fd> fds;
  std::vector<RangeLock> held;
  const std::vector<std::int64_t> offsets{900, 5, std::int64_t{1} << 61, 6, 7, 100};
  for (const std::int64_t offset : offsets) {
    fds.emplace_back(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    held.push_back(*RangeLock::acquire(fds.back().get(), offset, RangeLock::Mode::exclusive, soon()));
  }
  const base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(locks_held(fd.get(), 0, kGateOffset),
            (std::vector<std::int64_t>{5, 6, 7, 100, 900, std::int64_t{1} << 61}));
  EXPECT_EQ(locks_held(fd.get(), 6, 900), (std::vector<std::int64_t>{6, 7, 100}));
  held.clear();  // released before their descriptors are closed
  EXPECT_TRUE(locks_held(fd.get(), 0, kGateOffset).empty());
}

}  // namespace
}  // namespace kiln::cache::test
