// Families: one handle over the members of a template, which its launches pick by an argument.
#include "instantiate/plan.hpp"
#include "runtime/core_fixture.hpp"

namespace kiln::testing {
namespace {

class Families : public Core {
 protected:
  /// Adds a family f<ROWS, N>(out, rows) with the members ROWS = 8, 16 and 64. A grid of ROWS blocks tells them apart.
  static void add(Service& service, const std::string& name = "f", const std::string& body = "",
                  const std::string& more = "") {
    service.add_template(
        "format = 1\n[template]\nname = \"" + name + "\"\ninstantiate = \"f<{ROWS}, {N}>\"\n" +
            "[param.ROWS]\nkind = \"int\"\nvalues = [8, 16, 64]\n" +
            "[param.N]\nkind = \"int\"\nrange = [1, 100]\ndefault = 1\n" + more +
            "[family]\nby = \"rows\"\nparameter = \"ROWS\"\n"
            "[[arg]]\nname = \"out\"\ntype = \"ptr<f32>\"\naccess = \"write\"\n"
            "[[arg]]\nname = \"rows\"\ntype = \"i32\"\n"
            "[launch]\ngrid = [\"ROWS\"]\nblock = [\"64\"]\n",
        "template <int ROWS, int N> __global__ void f(float* out, int rows) { out[rows] = ROWS + N; " + body +
            " }\n");
  }
  Options sealed() const {
    Options o = options();
    o.mode = Mode::sealed;
    return o;
  }
  /// The member that a launch with `rows` has picked, by the grid of its launch.
  template <class Rows>
  unsigned picked(const Family& family, Rows rows, CUstream stream = nullptr) const {
    family(stream, device_pointer<float>(), rows);
    return last_launch().grid[0];
  }
  static std::string name_of(const Kernel& kernel) { return kernel.info().specialization; }
};

TEST_F(Families, TheValueOfTheArgumentPicksTheMember) {
  Service service(options());
  add(service);
  const KernelTemplate t = service.open("f");
  const Family family = t.get_family({{"N", 3}});
  EXPECT_EQ(service.stats().compiles, 3u);
  const std::pair<int, unsigned> expected[] = {
      {1, 8}, {7, 8}, {8, 8}, {9, 16}, {16, 16}, {17, 64}, {64, 64}, {65, 64}, {2'000'000'000, 64}};
  const auto calls = driver_calls([&] {
    for (const auto& [rows, member] : expected) EXPECT_EQ(picked(family, rows), member) << rows;
  });
  EXPECT_EQ(calls, std::size(expected)) << "one launch each";
  EXPECT_EQ(argument<std::int32_t>(last_launch(), 1), 2'000'000'000);
  EXPECT_EQ(picked(family, std::int64_t{9}), 16u);
  EXPECT_EQ(picked(family, std::uint8_t{200}), 64u);
  EXPECT_EQ(service.stats().compiles, 3u);
  EXPECT_EQ(name_of(family.member(9)), "f ROWS=16 N=3");
  EXPECT_EQ(family.member(9).handle(), t.get(16, 3).handle()) << "members are ordinary kernels";
  const kiln_family_info info = family.info();
  EXPECT_STREQ(info.by, "rows");
  EXPECT_STREQ(info.parameter, "ROWS");
  EXPECT_EQ(info.by_index, 1u);
  EXPECT_EQ(std::vector<std::int64_t>(info.edges, info.edges + info.member_count),
            (std::vector<std::int64_t>{8, 16, 64}));
}

TEST_F(Families, EqualParametersHaveOneHandle) {
  Service service(options());
  add(service);
  const KernelTemplate t = service.open("f");
  const Family family = t.get_family();
  EXPECT_EQ(t.get_family({{"N", 1}}).handle(), family.handle());
  EXPECT_EQ(t.get_family(Value(), 1).handle(), family.handle());
  EXPECT_NE(t.get_family({{"N", 2}}).handle(), family.handle());
  EXPECT_EQ(driver_calls([&] { t.get_family(); }), 0u);
}

TEST_F(Families, WhatIsNoFamilyIsRefused) {
  Service service(options());
  add(service);
  small(service, "s");
  expect_error(Errc::invalid_argument, {"template 's' is no family", "[family]"},
               [&] { service.open("s").get_family(); });
  expect_error(Errc::invalid_argument,
               {"template 'f', parameter 'ROWS'", "picks it by 'rows'", "leave it out"},
               [&] { service.open("f").get_family(8); });
  expect_error(Errc::invalid_value, {"template 'f', parameter 'N'", "1 to 100"}, [&] {
    service.open("f").get_family({{"N", 101}});
  });
  expect_error(Errc::unknown_parameter, {"no parameter 'M'"}, [&] {
    service.open("f").get_family({{"M", 1}});
  });
  expect_error(Errc::no_driver, {"opened without a device"},
               [&] { service.open("f", Device::none()).get_family(); });
  EXPECT_EQ(service.stats().compiles, 0u);
}

TEST_F(Families, WrongArgumentsAreRefusedAsByAKernel) {
  Service service(options());
  add(service);
  const Family family = service.open("f").get_family();
  float* const out = device_pointer<float>();
  expect_error(Errc::invalid_argument, {"launched with 1 arguments, expected (out, rows)"},
               [&] { family(nullptr, out); });
  expect_error(Errc::invalid_argument, {"argument 1 'rows' is a pointer", "expected i32"},
               [&] { family(nullptr, out, out); });
  expect_error(Errc::invalid_argument, {"f ROWS=64 N=1", "argument 'rows' = 5000000000 does not fit i32"},
               [&] { family(nullptr, out, std::int64_t{5'000'000'000}); });
  expect_error(Errc::invalid_argument, {"f ROWS=64 N=1", "'rows' = 18446744073709551615 does not fit i32"},
               [&] { family(nullptr, out, UINT64_MAX); });
}

TEST_F(Families, MembersAreMadeAtTheSameTime) {
  Options o = options();
  o.jobs = 3;
  o.worker =
      tree_.write("worker.sh", "#!/bin/sh\ntouch " + tree_.at("started") + ".$$\nwhile [ $(ls " +
                                   tree_.at("started") + ".* | wc -l) -lt 3 ]; do sleep 0.02; done\nexec " +
                                   std::string(places::kBuildDirectory) + "/kiln-worker \"$@\"\n");
  ::chmod(o.worker.c_str(), 0755);
  Service service(o);
  add(service);
  EXPECT_TRUE(service.open("f").get_family()) << "no worker goes on before there are three";
  EXPECT_EQ(service.stats().compiles, 3u);
}

TEST_F(Families, AMemberThatDoesNotCompileIsTheErrorOfTheFamily) {
  Service service(options());
  add(service, "bad", "static_assert(ROWS < 64, \"too many rows\");");
  expect_error(Errc::compile_failed, {"bad ROWS=64 N=1", "too many rows"},
               [&] { service.open("bad").get_family(); });
}

TEST_F(Families, ADeadlineEndsTheWaitAndTheMembersGoOn) {
  Service service(held());
  add(service);
  const KernelTemplate t = service.open("f");
  expect_error(Errc::deadline, {"f ROWS="}, [&] { t.get_family(GetOptions(0.05)); });
  let_compile();
  EXPECT_TRUE(t.get_family());
  EXPECT_EQ(service.stats().compiles, 3u);
}

TEST_F(Families, ASealedServiceHasAllMembersOrNamesTheMissingOnes) {
  Service service(sealed());
  add(service);
  const KernelTemplate t = service.open("f");
  service.prepare("[[prewarm]]\ntemplate = \"f\"\nROWS = 16\n").wait();
  service.seal();
  const std::string text = expect_error(
      Errc::not_ready, {"2 of the 3 members of family 'f' are not ready: f ROWS=8 N=1, f ROWS=64 N=1"},
      [&] { t.get_family(); });
  EXPECT_EQ(text.find("\"16\""), std::string::npos) << text;
  EXPECT_EQ(source::parse_plan(text.substr(text.find("[[prewarm]]")), "<message>").size(), 2u) << text;
  const auto missing = source::parse_plan(service.missing(), "<missing>");
  ASSERT_EQ(missing.size(), 2u);
  EXPECT_EQ(missing[0].values[0].value, "8");
  EXPECT_EQ(missing[1].values[0].value, "64");
  EXPECT_EQ(service.stats().sealed_misses, 2u);

  EXPECT_EQ(service.prepare(service.missing()).wait().compiled, 2u);
  const auto calls = driver_calls([&] { EXPECT_EQ(picked(t.get_family(), 17), 64u); });
  EXPECT_EQ(calls, 1u) << "the launch";
}

TEST_F(Families, ModeSealedTakesTheMembersFromDiskBeforeTheSeal) {
  {
    Service service(options());
    add(service);
    for (const int rows : {8, 16}) service.open("f", Device::none()).compile(rows);
  }
  Service service(sealed());
  add(service);
  expect_error(Errc::not_ready, {"1 of the 3 members of family 'f' are not ready: f ROWS=64 N=1. "},
               [&] { service.open("f").get_family(); });
  EXPECT_EQ(source::parse_plan(service.missing(), "<missing>").size(), 1u);
  EXPECT_EQ(service.stats().disk_hits, 2u);
}

TEST_F(Families, ACapturedStreamKeepsTheMember) {
  Service service(options());
  add(service);
  const KernelTemplate t = service.open("f");
  const CUstream stream = make_stream();
  ASSERT_EQ(cu().cuStreamBeginCapture(stream, 0), 0);
  expect_error(Errc::not_ready, {"3 of the 3 members of family 'f'", "the stream is capturing"},
               [&] { t.get_family(GetOptions::near(stream)); });
  {
    const CaptureScope capture;
    expect_error(Errc::not_ready, {"CaptureScope"}, [&] { t.get_family(); });
  }
  EXPECT_EQ(service.stats().compiles, 0u);
  toolchain::CUgraph graph = nullptr;
  EXPECT_EQ(cu().cuStreamEndCapture(stream, &graph), 0);

  const Family family = t.get_family(GetOptions::near(stream));
  ASSERT_EQ(cu().cuStreamBeginCapture(stream, 0), 0);
  EXPECT_EQ(t.get_family(GetOptions::near(stream)).handle(), family.handle());
  EXPECT_EQ(picked(family, 9, stream), 16u);
  EXPECT_TRUE(last_launch().captured);
  EXPECT_EQ(cu().cuStreamEndCapture(stream, &graph), 0);
}

TEST_F(Families, APlanNamesAllMembersWithAStar) {
  Service service(options());
  add(service);
  const Progress progress =
      service.prepare("[[prewarm]]\ntemplate = \"f\"\nROWS = \"*\"\nN = [1, 2]\n").wait();
  EXPECT_EQ(progress.total, 6u);
  EXPECT_EQ(progress.compiled, 6u);
  const KernelTemplate t = service.open("f");
  EXPECT_EQ(driver_calls([&] { t.get_family({{"N", 2}}); }), 0u);
  expect_error(Errc::invalid_value,
               {"template 'f', parameter 'N'", "\"*\" stands for every value", "1 to 100"},
               [&] { service.prepare("[[prewarm]]\ntemplate = \"f\"\nROWS = 8\nN = \"*\"\n"); });
}

TEST_F(Families, TheTraceHasEveryMember) {
  Options o = options();
  o.record = tree_.at("trace.toml");
  {
    Service service(o);
    add(service);
    service.open("f").get_family();
  }
  std::ifstream in(o.record);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(source::parse_plan(text, "trace").size(), 3u) << text;
}

TEST_F(Families, MembersAreLoadedKernelsOfTheFingerprint) {
  Service one(options()), other(options());
  add(one), add(other);
  const KernelTemplate t = one.open("f");
  t.get(8), t.get(16);
  const std::string two = one.fingerprint();
  t.get_family();
  EXPECT_NE(one.fingerprint(), two);
  for (const int rows : {64, 16, 8}) other.open("f").get(rows);
  EXPECT_EQ(one.fingerprint(), other.fingerprint());
}

TEST_F(Families, AReleasedScopeMakesItsFamilyAgain) {
  Service service(options());
  add(service);
  Scope scope = service.scope();
  const KernelTemplate t = scope.open("f");
  EXPECT_EQ(picked(t.get_family(), 1), 8u);
  scope.release();
  EXPECT_EQ(picked(t.get_family(), 64), 64u);
  EXPECT_EQ(service.stats().loads, 6u);
  EXPECT_EQ(service.stats().compiles, 3u);
}

TEST_F(Families, ManyThreadsGetOneFamily) {
  Service service(options());
  add(service);
  const KernelTemplate t = service.open("f");
  std::atomic<const kiln_family*> first{nullptr};
  on_threads(8, [&](int) {
    const Family family = t.get_family();
    const kiln_family* none = nullptr;
    if (!first.compare_exchange_strong(none, family.handle())) {
      EXPECT_EQ(none, family.handle());
    }
  });
  EXPECT_EQ(service.stats().loads, 3u);
}

}  // namespace
}  // namespace kiln::testing
