// A fixture for process tests that need a GPU. Without one they skip with a message.
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
