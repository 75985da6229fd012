// Tuned choices in records, in plans of missing kernels, and after the seal.
#include "runtime/tuned/fixture.hpp"

namespace kiln::testing {
namespace {

TEST_F(Tuned, ARecordIsServedWhereNothingWasTuned) {
  process([&] { choose(1, "64"); });
  record_one("record");
  const std::string record = text_of("record");
  EXPECT_NE(record.find("tuned = [\"B\"]"), std::string::npos) << record;
  for (const bool has_another : {false, true}) {
    process([&] {
      if (has_another) choose(1, "32");
      Options o = options();
      if (!has_another) o.cache_dir = tree_.at("elsewhere");
      o.mode = Mode::sealed;
      o.record = tree_.at("again" + std::to_string(has_another));
      Service service(o);
      tunable(service);
      service.prepare(record).wait();
      service.seal();
      EXPECT_EQ(block_of(service, 1), 64u);
      EXPECT_EQ(block_of(service.open("t").get({{"N", 1}, {"B", 64}})), 64u);
    });
    EXPECT_EQ(text_of("again" + std::to_string(has_another)), record) << "the same call";
  }
}

TEST_F(Tuned, ARecordedDefaultHoldsWhereAnotherChoiceIsStored) {
  record_one("record");
  process([&] {
    choose(1, "64");
    Service service(options());
    tunable(service);
    service.prepare(text_of("record")).wait();
    EXPECT_EQ(block_of(service, 1), 128u);
  });
}

TEST_F(Tuned, ARecordOfAnotherManifestIsOfValuesThatWereGiven) {
  process([&] {
    choose(1, "64");
    Service service(options());
    tunable(service);
    service
        .prepare(
            "[[prewarm]]\ntemplate = \"t\"\nN = 1\nB = 32\ntuned = [\"N\"]\n"
            "[[prewarm]]\ntemplate = \"t\"\nN = 2\nB = 32\n")
        .wait();
    EXPECT_EQ(block_of(service, 1), 64u);
    EXPECT_EQ(block_of(service, 2), 128u);
  });
}

TEST_F(Tuned, ASealedMissLeavesOpenWhatNobodyDecided) {
  std::string missing;
  process([&] {
    Options o = options();
    o.mode = Mode::sealed;
    Service service(o);
    tunable(service);
    const KernelTemplate t = service.open("t");
    service.seal();
    const std::string said = expect_error(Errc::not_ready, {"sealed"}, [&] { t.get({{"N", 1}}); });
    EXPECT_EQ(said.find("B = \""), std::string::npos) << said;
    tree_.write("missing", service.missing());
    EXPECT_EQ(text_of("missing").find("B = \""), std::string::npos) << text_of("missing");
  });
  // The next start uses the choice that is stored where the plan is prepared.
  for (const unsigned block : {128u, 64u}) {
    process([&] {
      if (block == 64) choose(1, "64");
      Options o = options();
      o.mode = Mode::sealed;
      Service service(o);
      tunable(service);
      service.prepare(text_of("missing")).wait();
      service.seal();
      EXPECT_EQ(block_of(service, 1), block);
    });
  }
}

TEST_F(Tuned, WhatIsServedAfterTheSealHolds) {
  process([&] {
    choose(1, "64");
    Options o = options();
    o.mode = Mode::sealed;
    {
      Service jit(options());
      tunable(jit);
      for (const int b : {64, 128}) jit.open("t", Device::none("sm_90a")).compile({{"N", 1}, {"B", b}});
    }
    Service service(o);
    tunable(service);
    const KernelTemplate t = service.open("t");
    EXPECT_EQ(block_of(t.get({{"N", 1}, {"B", 128}})), 128u);
    service.seal();
    EXPECT_EQ(block_of(t.get(1)), 128u) << "it is ready, and no disk is read";
    service.prepare("[[prewarm]]\ntemplate = \"t\"\nN = 1\n").wait();
    EXPECT_EQ(block_of(t.get(1)), 128u);
    EXPECT_EQ(block_of(t.get({{"N", "1"}})), 128u) << "said otherwise";
    Scope scope = service.scope();
    const KernelTemplate other = scope.open("t");
    expect_error(Errc::not_ready, {"t N=1 B=128"}, [&] { other.get(1); });
  });
}

}  // namespace
}  // namespace kiln::testing
