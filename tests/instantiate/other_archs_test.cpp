#include "instantiate/other_archs.hpp"

#include "tests/manifest/memory_template.hpp"
#include "tests/manifest/text.hpp"

namespace kiln::source {
namespace {

/// Templates with one parameter. `arch` is the text of [template] arch, `size` the default of SIZE, which the
/// kernel is compiled for.
class OtherArchs : public ::testing::Test {
 protected:
  static std::shared_ptr<const Template> made(const std::string& arch, const std::string& size = "64",
                                              const std::string& more = "",
                                              const std::string& twice = "2 * SIZE") {
    return in_memory(
        "format = 1\n[template]\nname = \"f\"\nsource = \"f.cu\"\ninstantiate = \"f<{SIZE}, {TWICE}>\"\n" +
        arch + "\n[param.SIZE]\nkind = \"int\"\nrange = [1, 4096]\ndefault = \"" + size +
        "\"\n[derive]\nTWICE = \"" + twice + "\"\n[launch]\ngrid = [\"1\"]\nblock = [\"32\"]\n" + more);
  }
  static std::string names(const std::vector<base::Arch>& archs) {
    std::string out;
    for (const base::Arch arch : archs) out += (out.empty() ? "" : " ") + arch.name();
    return out;
  }
  static std::string others(const std::shared_ptr<const Template>& t, int device, bool ptx = false) {
    std::vector<base::Arch> out;
    for (const Instantiation& unit :
         for_other_archs(instantiate(t, resolve(t->manifest, {}, base::Arch(device)))))
      if ((unit.resolved.arch.features == base::Features::ptx) == ptx) out.push_back(unit.resolved.arch);
    return names(out);
  }
  static std::string covering(const std::shared_ptr<const Template>& t, std::vector<int> devices) {
    return names(covering_archs(t, {}, devices));
  }
};

constexpr const char *kBase = "arch = { min = \"sm_80\", features = \"base\" }",
                     *kFamily = "arch = { min = \"sm_80\", features = \"family\" }",
                     *kExact = "arch = { min = \"sm_80\" }";

TEST_F(OtherArchs, TheManifestSaysWhichTargetsItsSourceCompilesFor) {
  EXPECT_EQ(others(made(kBase), 103), "sm_103f sm_100f sm_103_base sm_100_base");
  EXPECT_EQ(others(made(kFamily), 103), "sm_103f sm_100f");
  EXPECT_EQ(others(made(kExact), 103), "");
  EXPECT_EQ(others(made(""), 103), "") << "nothing said means exact";
  EXPECT_EQ(others(made(kExact), 89), "sm_86 sm_80") << "before 9.0 there are no features";
  EXPECT_EQ(others(made("arch = { min = \"sm_86\" }"), 89), "sm_86");
  EXPECT_EQ(others(made("arch = { only = [\"sm_100f\"] }"), 103), "sm_103f sm_100f");
}

TEST_F(OtherArchs, PtxComesLastAndHasTheFeaturesOfBase) {
  EXPECT_EQ(others(made(kBase), 100, true),
            "compute_100 compute_90 compute_89 compute_87 compute_86 compute_80");
  EXPECT_EQ(others(made(kFamily), 100, true), "compute_89 compute_87 compute_86 compute_80");
  EXPECT_EQ(others(made("arch = { only = [\"sm_90a\"] }"), 90, true), "");
  EXPECT_EQ(covering(made(kBase), {80, 90}), "sm_80 sm_90a") << "PTX is made only where a plan names it";
}

TEST_F(OtherArchs, AnotherKernelIsNoSubstitute) {
  EXPECT_EQ(others(made(kBase, "arch == 89 ? 128 : 64"), 89), "sm_86 sm_80")
      << "the value is given, not its default";
  EXPECT_EQ(others(made(kBase, "64", "[[require]]\nexpr = \"arch != 86\"\nmessage = \"no\"\n"), 89), "sm_80");
  EXPECT_EQ(others(made(kBase, "64", "[arch.sm_80]\ncompile = { define = { OLD = \"1\" } }\n"), 89), "sm_86")
      << "sm_80 has another option";
}

TEST_F(OtherArchs, ADeriveThatFollowsTheArchIsAnotherKernel) {
  EXPECT_EQ(others(made(kBase, "64", "", "arch == 89 ? 3 : 2"), 89), "");
}

TEST_F(OtherArchs, TheFewestImagesCoverAllGpus) {
  EXPECT_EQ(covering(made(kBase), {100, 103, 120, 121}), "sm_100_base sm_120_base");
  EXPECT_EQ(covering(made(kFamily), {100, 103, 120, 121}), "sm_100f sm_120f");
  EXPECT_EQ(covering(made(kExact), {100, 103, 120, 121}), "sm_100a sm_103a sm_120a sm_121a");
  EXPECT_EQ(covering(made(kBase), {80, 86, 89, 90}), "sm_80 sm_90a");
  EXPECT_EQ(covering(made(kBase), {103}), "sm_100_base");
  EXPECT_EQ(covering(made(kBase, "arch == 86 ? 32 : 64"), {80, 86, 89}), "sm_80 sm_86")
      << "8.6 gets other code, so it needs an image of its own";
  EXPECT_EQ(covering(made("arch = { only = [\"sm_90a\"] }"), {90, 100}), "sm_90a") << "10.0 is left out";
}

TEST_F(OtherArchs, NoDeviceThatTheTemplateSupportsIsAnError) {
  const auto t = made("arch = { only = [\"sm_90a\"] }");
  expect_error(Errc::unsupported_arch, {"'f'", "sm_100a", "sm_90a"}, [&] { covering(t, {100}); });
}

TEST_F(OtherArchs, AGpuThatARequirementRefusesIsLeftOut) {
  const auto t =
      made(kFamily, "64", "[[require]]\nexpr = \"arch.smem_sm > 102400\"\nmessage = \"too small\"\n");
  std::vector<std::string> refused;
  const std::vector<int> devices{100, 103, 120, 121};
  EXPECT_EQ(names(covering_archs(t, {}, devices, &refused)), "sm_100f");
  ASSERT_EQ(refused.size(), 2u);
  EXPECT_NE(refused[0].find("sm_120a"), std::string::npos) << refused[0];
  expect_error(Errc::requirement, {"too small"}, [&] { covering(t, {120}); });
}

TEST_F(OtherArchs, AFamilysVariantHoldsForItsExactTargetsToo) {
  const auto t = made(kBase, "64",
                      "[arch.sm_90a]\ncompile = { define = { WHICH = \"90\" } }\n"
                      "[arch.sm_100f]\ncompile = { define = { WHICH = \"100\" } }\n"
                      "[arch.sm_103a]\ncompile = { define = { WHICH = \"103\" } }\n");
  const auto which = [&](const char* arch) {
    for (const std::string& option :
         instantiate(t, resolve(t->manifest, {}, base::Arch::parse(arch), Archs::any)).options)
      if (option.starts_with("-DWHICH=")) return option.substr(8);
    return std::string("none");
  };
  EXPECT_EQ(which("sm_90a"), "90");
  EXPECT_EQ(which("sm_100f"), "100");
  EXPECT_EQ(which("sm_100a"), "100");
  EXPECT_EQ(which("sm_103f"), "100");
  EXPECT_EQ(which("sm_103a"), "103");
  EXPECT_EQ(which("sm_120a"), "none");
}

TEST_F(OtherArchs, FeaturesBelongToMin) {
  expect_error(Errc::manifest, {"features", "only"},
               [&] { made("arch = { only = [\"sm_90a\"], features = \"base\" }"); });
  expect_error(Errc::manifest, {"features", "'most'", "base family exact"},
               [&] { made("arch = { min = \"sm_80\", features = \"most\" }"); });
  EXPECT_EQ(covering(made("arch = { features = \"base\" }"), {100, 103}), "sm_100_base");
}

TEST_F(OtherArchs, ATargetWithFewerFeaturesThanTheSourceNeedsIsRefused) {
  const auto t = made(kFamily);
  expect_error(Errc::unsupported_arch, {"'f'", "sm_100_base", "family", "sm_100a"},
               [&] { resolve(t->manifest, {}, base::Arch::parse("sm_100_base")); });
}

}  // namespace
}  // namespace kiln::source
