// A choice that is stored while a process runs: which processes use it, and that a
// process keeps its first answer.
#include "runtime/tuned/fixture.hpp"

namespace kiln::testing {
namespace {

TEST_F(Tuned, AChoiceTakesThePlaceOfTheDefault) {
  process([&] {
    choose(1, "64");
    Service service(options());
    tunable(service);
    const KernelTemplate t = service.open("t");
    EXPECT_EQ(block_of(t.get({{"N", 1}})), 64u);
    EXPECT_EQ(std::string(t.get({{"N", 1}}).info().specialization), "t N=1 B=64");
    EXPECT_EQ(block_of(t.get({{"N", 2}})), 128u);
    EXPECT_EQ(block_of(t.get({{"N", 1}, {"B", 32}})), 32u) << "what is said beats it";
    EXPECT_EQ(block_of(t.get({{"N", 1}, {"B", 128}})), 128u) << "also the default";
    EXPECT_EQ(driver_calls([&] { t.get({{"N", 1}}); }), 0u) << "ready";
  });
}

TEST_F(Tuned, TheFirstAnswerHoldsForTheProcess) {
  process([&] {
    {
      Service service(options());
      tunable(service);
      EXPECT_EQ(block_of(service, 1), 128u);
      choose(1, "64");
      choose(2, "64");
      EXPECT_EQ(block_of(service, 1), 128u) << "that there was none is an answer, too";
      EXPECT_EQ(block_of(service, 2), 64u) << "nobody had asked";
    }
    choose(2, "32");
    Service another(options());
    tunable(another);
    EXPECT_EQ(block_of(another, 1), 128u);
    EXPECT_EQ(block_of(another, 2), 64u);
  });
  process([&] {
    Service service(options());
    tunable(service);
    EXPECT_EQ(block_of(service, 1), 64u) << "the next process takes what is there";
    EXPECT_EQ(block_of(service, 2), 32u);
  });
}

TEST_F(Tuned, TwoProcessesRunTheSame) {
  const std::string one = tree_.at("one"), two = tree_.at("two");
  const auto rank = [&](const std::string& file) {
    process([&] {
      Service service(options());
      tunable(service);
      service.open("t").get({{"N", 1}});
      tree_.write(file.substr(tree_.path().size() + 1), service.fingerprint());
    });
  };
  const auto text = [](const std::string& file) {
    std::ifstream in(file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  rank(one);
  const std::string by_default = text(one);
  process([&] { choose(1, "64"); });
  rank(one), rank(two);
  EXPECT_EQ(text(one), text(two));
  EXPECT_NE(text(one), by_default) << "resolved values are in it";
}

TEST_F(Tuned, RecordsAndPlansCarryResolvedValues) {
  process([&] {
    choose(1, "64");
    Options o = options();
    o.record = tree_.at("record");
    {
      Service service(o);
      tunable(service);
      service.open("t").get({{"N", 1}});
    }
    std::ifstream in(o.record);
    const std::string record(std::istreambuf_iterator<char>(in), {});
    EXPECT_NE(record.find("B = \"64\""), std::string::npos) << record;
    Options sealed = options();
    sealed.mode = Mode::sealed;
    sealed.cache_dir = tree_.at("cache");
    Service service(sealed);
    tunable(service);
    const std::string said = expect_error(Errc::not_ready, {}, [&] { service.open("t").get({{"N", 3}}); });
    EXPECT_NE(service.missing().find("N = \"3\""), std::string::npos) << service.missing();
  });
}

TEST_F(Tuned, ASealedServiceReadsNoDiskForIt) {
  process([&] {
    choose(1, "64");
    choose(2, "64");
    Options o = options();
    o.mode = Mode::sealed;
    {
      Service jit(options());
      tunable(jit);
      jit.open("t", Device::none("sm_90a")).compile({{"N", 1}, {"B", 64}});
      jit.open("t", Device::none("sm_90a")).compile({{"N", 2}, {"B", 64}});
    }
    Service service(o);
    tunable(service);
    EXPECT_EQ(block_of(service, 1), 64u) << "before the seal, from disk";
    service.seal();
    EXPECT_EQ(block_of(service, 1), 64u);
    expect_error(Errc::not_ready, {"sealed", "t N=2 B=128"}, [&] { service.open("t").get({{"N", 2}}); });
    // prepare() may look into the store after the seal. It resolves the row as a get before the seal would.
    service.prepare("[[prewarm]]\ntemplate = \"t\"\nN = 2\n").wait();
    EXPECT_EQ(block_of(service, 2), 64u);
  });
}

TEST_F(Tuned, AChoiceIsNoValueThatAFallbackWasGiven) {
  process([&] {
    choose(1, "64");
    Options o = held();
    {
      Service builder(options());
      generic(builder);
      for (const int n : {1, 2}) builder.open("generic", Device::none()).compile({{"N", n}, {"B", 96}});
      builder.open("generic", Device::none()).compile({{"N", 1}, {"B", 32}});
    }
    Service service(o);
    generic(service);
    tunable(service, "fallback = \"generic\"\n");
    const KernelTemplate t = service.open("t");
    const auto name = [](const Kernel& k) { return std::string(k.info().specialization); };
    EXPECT_EQ(name(t.get_or_fallback({{"N", 1}})), "generic N=1 B=96");
    EXPECT_EQ(name(t.get_or_fallback({{"N", 2}})), "generic N=2 B=96") << "nor is its default";
    EXPECT_EQ(name(t.get_or_fallback({{"N", 1}, {"B", 32}})), "generic N=1 B=32");
    let_compile();
  });
}

TEST_F(Tuned, AChoiceThatTakesLessThanTheDefaultIsLeft) {
  process([&] {
    choose(1, "64");
    Service service(options());
    tunable(service, "", "dev.sms < 4 || B != 64");
    EXPECT_EQ(block_of(service, 1), 128u);
  });
}

TEST_F(Tuned, AChoiceForAnotherDeviceIsNone) {
  process([&] {
    choose(1, "64", "Fake sm_90 of another size");
    Service service(options());
    tunable(service);
    EXPECT_EQ(block_of(service, 1), 128u);
  });
}

TEST_F(Tuned, AChoiceThatIsNoneOfTheParametersIsLeft) {
  process([&] {
    choose(1, "65");
    Service service(options());
    tunable(service);
    EXPECT_EQ(block_of(service, 1), 128u);
  });
}

TEST_F(Tuned, EveryWayToAKernelTakesTheChoice) {
  process([&] {
    for (const int n : {1, 2, 3, 4}) choose(n, "64");
    Service service(options());
    tunable(service);
    const KernelTemplate t = service.open("t");
    EXPECT_EQ(block_of(t.get_async({{"N", 1}}).get()), 64u);
    t.prefetch({{"N", 2}});
    EXPECT_TRUE(comes_true([&] { return static_cast<bool>(t.try_get(2)); }));
    EXPECT_EQ(block_of(t.try_get(2)), 64u);
    service
        .prepare("[[prewarm]]\ntemplate = \"t\"\nN = [3, 4]\n[[prewarm]]\ntemplate = \"t\"\nN = 3\nB = 128\n")
        .wait();
    EXPECT_EQ(block_of(t.try_get(3)), 64u);
    EXPECT_EQ(block_of(t.try_get(3, 128)), 128u) << "said, and so another row";
  });
}

}  // namespace
}  // namespace kiln::testing
