#include "base/lazy.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/child.hpp"

namespace kiln::base {
namespace {

/// Counts its destructions in this process.
struct Counted {
  Counted() = default;
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { ++ends; }
  static inline std::atomic<int> ends{0};
};

TEST(Lazy, IsMadeOnceHoweverManyAskAtOnce) {
  for (int round = 0; round < 200; ++round) {
    Lazy<int> lazy;
    std::atomic<int> made{0}, wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] { wrong += lazy.get([&] { return 40 + ++made; }) != 41; });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(made, 1);
    EXPECT_EQ(wrong, 0);
  }
}

TEST(Lazy, IsNotThereBeforeItsFirstUseNorAfterAMakingThatThrew) {
  Lazy<std::string> lazy;
  EXPECT_EQ(lazy.made(), nullptr);
  EXPECT_THROW(lazy.get([]() -> std::string { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_EQ(lazy.made(), nullptr);
  EXPECT_EQ(lazy.get([] { return std::string("yes"); }), "yes");
  ASSERT_TRUE(lazy.made());
  EXPECT_EQ(*lazy.made(), "yes");
}

TEST(Lazy, WhatCameFirstStays) {
  Lazy<int> set_first, made_first;
  EXPECT_TRUE(set_first.set(1));
  EXPECT_FALSE(set_first.set(2));
  EXPECT_EQ(set_first.get([] { return 3; }), 1);
  EXPECT_EQ(made_first.get([] { return 4; }), 4);
  EXPECT_FALSE(made_first.set(5));
  EXPECT_EQ(made_first.get([] { return 6; }), 4);
}

TEST(Lazy, AForkInTheMiddleOfAnotherThreadsMakingLeavesTheChildItsOwn) {
  Lazy<int> lazy;
  std::atomic<bool> making{false}, forked{false};
  std::thread maker([&] {
    lazy.get([&] {
      making = true;
      while (!forked) std::this_thread::yield();
      return 1;
    });
  });
  while (!making) std::this_thread::yield();
  const int child = testing::in_child([&] { return lazy.get([] { return 2; }); });
  forked = true;
  maker.join();
  EXPECT_EQ(child, 2) << "128 + SIGALRM: it waited for a thread that it does not have";
  EXPECT_EQ(lazy.get([] { return 3; }), 1) << "the parent's making went on";
}

TEST(Lazy, AChildUsesWhatItsParentHadFinishedAndLeavesItsEndToTheParent) {
  Counted::ends = 0;
  {
    Lazy<Counted> lazy;
    lazy.get([] { return Counted(); });
    EXPECT_EQ(testing::in_child([&] {
                const Counted* const parents = lazy.made();
                const bool used = parents && &lazy.get([] { return Counted(); }) == parents;
                lazy.~Lazy();
                return used ? Counted::ends.load() : 50;
              }),
              0);
    EXPECT_EQ(Counted::ends, 0);
  }
  EXPECT_EQ(Counted::ends, 1);
}

TEST(Lazy, AChildEndsWhatItMade) {
  Counted::ends = 0;
  Lazy<Counted> lazy;
  EXPECT_EQ(testing::in_child([&] {
              lazy.get([] { return Counted(); });
              lazy.~Lazy();
              return Counted::ends.load();
            }),
            1);
  EXPECT_EQ(lazy.made(), nullptr);
}

}  // namespace
}  // namespace kiln::base
