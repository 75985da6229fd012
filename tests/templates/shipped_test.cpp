// The shipped templates through the compiler, for every arch that kiln has a name for; the GPU is run.py's.
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

class ShippedTemplates : public KilnCompiler {};

TEST_F(ShippedTemplates, EverySpecialisationCompilesForEveryArchWithoutSpillsAndWarnings) {
  const Finished r = kiln({"prewarm", "--strict", "--keep-going", "--json", "--arch",
                           "sm_80,sm_86,sm_89,sm_90a,sm_100a,sm_120a"});
  EXPECT_EQ(r.status, 0) << r.err.substr(0, 4000);
  std::map<std::string, std::map<std::string, int>> compiled;
  const auto json = r.json();
  for (const auto& entry : json["entries"]) {
    EXPECT_EQ(entry["limits_broken"].size(), 0u) << entry.dump();
    ++compiled[entry["template"].get<std::string>()][entry["arch"].get<std::string>()];
  }
  for (const char* name : {"act_and_mul", "amax", "append_paged_kv", "fp8_quant", "moe_align", "rms_norm",
                           "rope", "softmax", "topk_gate"}) {
    EXPECT_EQ(compiled[name].size(), 6u) << name << " has no specialisation that ships warm";
  }
}

}  // namespace
}  // namespace kiln::test
