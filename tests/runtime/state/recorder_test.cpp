// KILN_RECORD: one file that many processes write, and that is a plan.
#include "runtime/state/recorder.hpp"

#include <algorithm>
#include <random>
#include <thread>

#include "kiln/error.hpp"
#include "runtime/service/service.hpp"
#include "runtime/state/recorder_fixture.hpp"

namespace kiln::testing {
namespace {

TEST_F(RecorderTest, WritesEachSpecialisationOnceAsAPlan) {
  {
    Recorder recorder(file_);
    EXPECT_FALSE(base::read_file(file_));
    for (const int n : {4, 2, 4, 4, 2}) record(recorder, n);
  }
  const auto plan = source::parse_plan(text(), file_);
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].template_name, "scale");
  EXPECT_EQ(plan[0].arch, "sm_90a");
  EXPECT_EQ(plan[0].values, (std::vector<Parameter>{{"T", "f32"}, {"N", "4"}}));
  EXPECT_EQ(rows(), (Rows{4, 2}));
  EXPECT_EQ(warnings(), 0u);
}

TEST_F(RecorderTest, DoesNotGrowWithEveryRestart) {
  for (int run = 0; run < 3; ++run) {
    Recorder recorder(file_);
    for (const int n : {1, 2, 3}) record(recorder, n);
  }
  EXPECT_EQ(rows(), (Rows{1, 2, 3}));
  Recorder recorder(file_);
  record(recorder, 2), record(recorder, 9);
  EXPECT_EQ(rows(), (Rows{1, 2, 3, 9}));
}

TEST_F(RecorderTest, WithoutAFileNothingIsWritten) {
  Recorder recorder("");
  record(recorder, 1);
  EXPECT_FALSE(base::read_file(".templates"));
}

TEST_F(RecorderTest, EightProcessesOfFourThreadsLeaveOneRowEach) {
  constexpr int kRows = 100;
  std::vector<pid_t> children;
  for (int process = 0; process < 8; ++process) {
    children.push_back(start_child([&] {
      Recorder recorder(file_);
      std::vector<std::thread> threads;
      for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
          std::vector<int> order(kRows);
          for (int i = 0; i < kRows; ++i) order[static_cast<std::size_t>(i)] = i + 1;
          std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(process * 4 + t)));
          for (const int n : order) record(recorder, n);
        });
      }
      for (std::thread& thread : threads) thread.join();
    }));
  }
  for (const pid_t pid : children) EXPECT_EQ(finish(pid), 0);
  source::PlanNotes notes;
  Rows got = rows(&notes);
  std::sort(got.begin(), got.end());
  ASSERT_EQ(got.size(), static_cast<std::size_t>(kRows));
  for (int i = 0; i < kRows; ++i) EXPECT_EQ(got[static_cast<std::size_t>(i)], i + 1);
  EXPECT_EQ(notes.repeats, 0u);
  EXPECT_TRUE(notes.ignored.empty());
}

TEST_F(RecorderTest, TheServiceRecordsASealedMiss) {
  Options options = Options::hermetic();
  options.cache_dir = tree_.at("cache"), options.template_path = tree_.at("t");
  options.mode = Mode::sealed, options.record = file_;
  options.cuda_home = tree_.at("no toolkit");
  {
    runtime::Service service(options);
    auto& scale = service.open("scale", KILN_DEVICE_NONE, "90");
    EXPECT_THROW(scale.compile(std::vector<Value>{Value(Dtype::f32), Value(3)}), Error);
    service.seal();
    EXPECT_THROW(scale.compile(std::vector<Value>{Value(Dtype::f32), Value(5)}), Error);
    EXPECT_EQ(rows(), Rows{3}) << "a refusal after the seal touches no file";
  }
  EXPECT_EQ(rows(), (Rows{3, 5}));
}

}  // namespace
}  // namespace kiln::testing
