// Exactly the compiles that wait for their turn are shown as waiting.
#include "compile/pool/admission.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace kiln::compile {
namespace {

/// Slots that are all taken until `free` is set.
struct Slots final : HostSlots {
  struct OneRequest final : Request {
    explicit OneRequest(Slots& slots) : slots_(slots) {}
    std::shared_ptr<void> try_take() override { return slots_.free ? std::make_shared<char>() : nullptr; }
    Slots& slots_;
  };
  std::unique_ptr<Request> request(Urgency) override { return std::make_unique<OneRequest>(*this); }
  std::shared_ptr<void> show_waiting(const Demand& demand) noexcept override {
    what = demand.what;
    ++begun;
    return std::shared_ptr<void>(this, [](void* slots) { ++static_cast<Slots*>(slots)->ended; });
  }
  std::atomic<bool> free{false};
  std::atomic<int> begun{0}, ended{0};
  std::string what;
};

bool comes_true(const std::function<bool()>& check) {
  return base::poll_until(base::Deadline::after(std::chrono::seconds(60)), check);
}

TEST(AdmissionShows, WhoWaitsForASlotUntilHeHasIt) {
  Admission admission;
  Slots slots;
  Demand demand;
  demand.what = "kernel 1";
  std::thread waiter([&] {
    EXPECT_TRUE(admission.enter({.jobs = 1, .memory = std::uint64_t{1} << 40, .slots = &slots}, demand));
  });
  EXPECT_TRUE(comes_true([&] { return slots.begun == 1; }));
  EXPECT_EQ(slots.ended, 0);
  slots.free = true;
  waiter.join();
  EXPECT_EQ(slots.begun, 1) << "once";
  EXPECT_EQ(slots.ended, 1);
  EXPECT_EQ(slots.what, "kernel 1");
}

TEST(AdmissionShows, WhoWaitsForHisProcessesOtherCompiles) {
  Admission admission;
  Slots slots;
  slots.free = true;
  const Admission::Limits limits{.jobs = 1, .memory = std::uint64_t{1} << 40, .slots = &slots};
  auto first = admission.enter(limits, {});
  ASSERT_TRUE(first);
  EXPECT_EQ(slots.begun, 0) << "it did not wait";
  std::thread second([&] { EXPECT_TRUE(admission.enter(limits, {})); });
  EXPECT_TRUE(comes_true([&] { return slots.begun == 1; }));
  first.reset();
  second.join();
  EXPECT_EQ(slots.ended, 1);
}

TEST(AdmissionShows, NobodyWhoGivesUpIsLeft) {
  Admission admission;
  Slots slots;
  Demand demand;
  demand.give_up = base::Deadline::after(std::chrono::milliseconds(200));
  EXPECT_FALSE(admission.enter({.jobs = 1, .memory = std::uint64_t{1} << 40, .slots = &slots}, demand));
  EXPECT_EQ(slots.begun, slots.ended);
  EXPECT_EQ(slots.begun, 1);
}

}  // namespace
}  // namespace kiln::compile
