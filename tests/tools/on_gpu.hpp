// A fixture of the process tests that is skipped, and says so, without a GPU.
#pragma once

#include "toolchain/driver.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {

template <class Fixture>
class OnGpu : public Fixture {
 protected:
  void SetUp() override {
    const toolchain::Driver* driver = toolchain::Driver::get();
    if (!driver || driver->cuInit(0) != 0) GTEST_SKIP() << "no GPU on this machine";
    Fixture::SetUp();
  }
};

}  // namespace kiln::test
