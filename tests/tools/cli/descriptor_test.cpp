// Closed or redirected standard descriptors must not damage the store.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/places.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

using Descriptors = KilnCompiler;

TEST_F(Descriptors, AClosedStandardOutputIsNotTheStore) {
  EXPECT_EQ(kiln({"compile", "rms_norm", "T=bf16", "H=4096", "--arch", "sm_90a"}).status, 0);
  std::string command = "env -i PATH=\"$PATH\"";
  for (const auto& [name, value] : environment()) command += ' ' + name + "='" + value + '\'';
  command += std::string(" ") + places::kCommand + " compile rms_norm T=bf16 H=4096 --arch sm_90a --json ";
  for (const char* closed : {">&-", ">/dev/null 2>&-", ">/dev/null <&-", "<&- >&- 2>&-"}) {
    const int status = std::system((command + closed).c_str());
    (void)status;  // may fail without an output; only the store matters
    const Finished listed = kiln({"ls", "--json"});
    EXPECT_EQ(listed.status, 0) << closed << listed.err;
    EXPECT_NE(listed.out.find("rms_norm"), std::string::npos) << closed;
  }
}

}  // namespace
}  // namespace kiln::test
