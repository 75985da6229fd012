// The process's memory of tuned choices.
#include "runtime/tuned/pinned_choices.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <set>
#include <thread>

#include "support/child.hpp"

namespace kiln::runtime {
namespace {

PinnedChoice of(const std::string& value) { return {{{"B", value}}, std::nullopt}; }

TEST(PinnedChoices, TheFirstAnswerHoldsAlsoThatThereIsNone) {
  EXPECT_EQ(pinned_choice("t N=1"), nullptr);
  EXPECT_EQ(pin_choice("t N=1", of("64")).chosen.front().value, "64");
  EXPECT_EQ(pin_choice("t N=1", of("32")).chosen.front().value, "64");
  EXPECT_TRUE(pin_choice("t N=2", {}).chosen.empty());
  EXPECT_TRUE(pin_choice("t N=2", of("32")).chosen.empty());
  EXPECT_EQ(pinned_choice("t N=1")->chosen.front().value, "64");
  EXPECT_EQ(pinned_choice("t N=3"), nullptr);
}

TEST(PinnedChoices, ThreadsThatAskAtOnceAgree) {
  constexpr int kThreads = 8, kCalls = 3000;  // more calls than buckets
  std::vector<std::vector<const PinnedChoice*>> seen(kThreads);
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      for (int i = 0; i < kCalls; ++i)
        seen[static_cast<std::size_t>(t)].push_back(
            &pin_choice("call " + std::to_string(i), of(std::to_string(t))));
    });
  for (auto& thread : threads) thread.join();
  for (int t = 1; t < kThreads; ++t) EXPECT_EQ(seen[static_cast<std::size_t>(t)], seen[0]);
  EXPECT_EQ(std::set<const PinnedChoice*>(seen[0].begin(), seen[0].end()).size(), std::size_t{kCalls});
}

TEST(PinnedChoices, AForkedChildHasItsParentsAnswers) {
  pin_choice("forked", of("64"));
  EXPECT_EQ(kiln::testing::in_child([] {
              if (pin_choice("forked", of("32")).chosen.front().value != "64") return 1;
              return pin_choice("of the child", of("32")).chosen.front().value == "32" ? 0 : 2;
            }),
            0);
  EXPECT_EQ(pinned_choice("of the child"), nullptr);
}

}  // namespace
}  // namespace kiln::runtime
