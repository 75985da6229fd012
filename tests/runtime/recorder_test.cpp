// KILN_RECORD: one file, written by many, that stays a plan whatever happens to its writers.
#include "runtime/recorder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "base/fd.hpp"
#include "base/log.hpp"
#include "cache/gate.hpp"
#include "kiln/error.hpp"
#include "runtime/service.hpp"
#include "runtime/service_fixture.hpp"
#include "source/plan.hpp"
#include "source/record_text.hpp"
#include "support/tree.hpp"

namespace kiln::testing {
namespace {

using runtime::Recorder;
using namespace std::chrono_literals;

class RecorderTest : public ::testing::Test {
 protected:
  RecorderTest() : catalog_({tree_.at("t")}), file_(tree_.at("record")) {
    tree_.write("t/scale.toml", small_manifest("scale"));
    tree_.write("t/scale.cu", small_source());
    origin_ = catalog_.open("scale");
    base::set_log_sink([this](base::Level, std::string_view line) {
      const std::lock_guard lock(lines_mutex_);
      lines_.emplace_back(line);
    });
  }
  ~RecorderTest() override { base::set_log_sink(nullptr); }

  static source::Resolved resolved(const source::Template& origin, std::int64_t n) {
    return source::resolve(origin.manifest, std::vector<Value>{Value(Dtype::f32), Value(n)},
                           base::Arch::parse("90"));
  }
  void record(Recorder& recorder, std::int64_t n) const { recorder.record(*origin_, resolved(*origin_, n)); }
  std::string text() const {
    const auto content = base::read_file(file_);
    return content ? content->bytes : "";
  }
  /// The N of each row, in the file's order.
  std::vector<std::int64_t> rows(source::PlanNotes* notes = nullptr) const {
    std::vector<std::int64_t> out;
    for (const auto& planned : source::parse_plan(text(), file_, notes)) out.push_back(n_of(planned));
    return out;
  }
  static std::int64_t n_of(const source::PlannedSpecialization& planned) {
    for (const Parameter& p : planned.values)
      if (p.name == "N") return std::stoll(p.value);
    return -1;
  }
  /// Runs `body` in a child process and returns its exit status; 128 + signal when one ended it.
  template <class Body>
  static int in_child(Body&& body) {
    const pid_t pid = start_child(std::forward<Body>(body));
    return finish(pid);
  }
  template <class Body>
  static pid_t start_child(Body&& body) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(60);
      body();
      ::_exit(0);
    }
    return pid;
  }
  static int finish(pid_t pid) {
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  std::size_t warnings() const {
    const std::lock_guard lock(lines_mutex_);
    return lines_.size();
  }

  Tree tree_;
  source::Catalog catalog_;
  const std::string file_;
  std::shared_ptr<const source::Template> origin_;
  mutable std::mutex lines_mutex_;
  std::vector<std::string> lines_;
};

using Rows = std::vector<std::int64_t>;

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

TEST_F(RecorderTest, ATornEndIsHealedByTheNextWriterWhereverItWasTorn) {
  {
    Recorder recorder(file_);
    record(recorder, 1), record(recorder, 2);
  }
  const std::string whole = text();
  const std::size_t first = whole.find("\n# end\n") + 7;
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    base::write_file(file_, whole.substr(0, size));
    Recorder recorder(file_);
    record(recorder, 3);
    source::PlanNotes notes;
    const Rows expected = size < first ? Rows{3} : size < whole.size() ? Rows{1, 3} : Rows{1, 2, 3};
    ASSERT_EQ(rows(&notes), expected) << size;
    // What ends with a whole line may be somebody's own: it stays, and does not count.
    const bool cut_in_a_line = size == 0 || whole[size - 1] != '\n';
    EXPECT_TRUE(notes.ignored.empty() || !cut_in_a_line) << size;
  }
  for (const std::size_t size : {std::size_t{1}, std::size_t{8}, first - 20, first + 5, whole.size() - 30}) {
    std::string torn = whole.substr(0, size) + std::string(4096, '\0');  // a size that reached the disk first
    base::write_file(file_, torn);
    Recorder recorder(file_);
    record(recorder, 3);
    source::PlanNotes notes;
    EXPECT_EQ(rows(&notes), size < first ? Rows{3} : (Rows{1, 3})) << size;
    EXPECT_TRUE(notes.ignored.empty()) << size;
  }
}

TEST_F(RecorderTest, KilledWritersLeaveAPlan) {
  for (int round = 0; round < 60; ++round) {
    const pid_t pid = start_child([&] {
      Recorder recorder(file_);
      for (int n = 1 + round * 5; n <= 1000; ++n) record(recorder, n);
    });
    std::this_thread::sleep_for(std::chrono::microseconds(300 + 37 * round));
    ::kill(pid, SIGKILL);
    finish(pid);
    EXPECT_NO_THROW(source::parse_plan(text(), file_)) << round;
  }
  {
    Recorder recorder(file_);
    for (int n = 1; n <= 1000; ++n) record(recorder, n);
  }
  source::PlanNotes notes;
  Rows got = rows(&notes);
  std::sort(got.begin(), got.end());
  EXPECT_EQ(got.size(), 1000u);
  EXPECT_EQ(notes.repeats, 0u);
}

TEST_F(RecorderTest, AFullDiskTakesARowBackAndTheNextWriteBringsIt) {
  EXPECT_EQ(in_child([&] {
              Recorder recorder(file_);
              record(recorder, 1);
              const std::string before = text();
              const rlimit tight{before.size() + 10, RLIM_INFINITY}, wide{RLIM_INFINITY, RLIM_INFINITY};
              if (::setrlimit(RLIMIT_FSIZE, &tight) != 0) ::_exit(2);
              record(recorder, 2), record(recorder, 3);
              if (text() != before) ::_exit(3);
              if (warnings() != 1) ::_exit(4);
              ::setrlimit(RLIMIT_FSIZE, &wide);
              record(recorder, 4);
              if (rows() != Rows{1, 2, 3, 4}) ::_exit(5);
            }),
            0);
}

TEST_F(RecorderTest, WhatIsNoRecordIsLeftAsItIsWithOneWarning) {
  base::write_file(file_, "export PATH=/bin\n");
  Recorder recorder(file_);
  record(recorder, 1), record(recorder, 2);
  EXPECT_EQ(text(), "export PATH=/bin\n");
  ASSERT_EQ(warnings(), 1u);
  EXPECT_NE(lines_[0].find(file_), std::string::npos) << lines_[0];
  EXPECT_NE(lines_[0].find("is no record"), std::string::npos) << lines_[0];
}

TEST_F(RecorderTest, APlaceThatCannotBeWrittenIsOneWarning) {
  const std::string fifo = tree_.at("fifo"), directory = tree_.at("directory");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  ASSERT_EQ(::mkdir(directory.c_str(), 0700), 0);
  std::size_t expected = 0;
  for (const std::string& place : {tree_.at("missing/record"), fifo, directory, std::string("/dev/full")}) {
    Recorder recorder(place);
    for (int n = 1; n <= 3; ++n) record(recorder, n);
    EXPECT_EQ(warnings(), ++expected) << place;
    expected = warnings();
  }
}

TEST_F(RecorderTest, AStoppedLockHolderCostsOneDeadlineAndNoRow) {
  Recorder recorder(file_);
  record(recorder, 1);
  {
    const base::Fd held(::open(file_.c_str(), O_RDWR | O_CLOEXEC));
    const auto lock = cache::RangeLock::acquire(held.get(), std::int64_t{1} << 62,
                                                cache::RangeLock::Mode::exclusive, base::Deadline::after(1s));
    ASSERT_TRUE(lock);
    const auto start = base::Clock::now();
    for (int n = 2; n <= 100; ++n) record(recorder, n);
    EXPECT_LT(base::Clock::now() - start, 10s);  // 99 deadlines would be 20 s
    EXPECT_EQ(rows(), (Rows{1}));
    EXPECT_EQ(warnings(), 1u);
  }
  record(recorder, 101);
  EXPECT_EQ(rows().size(), 101u);
}

TEST_F(RecorderTest, WhatWasPendingAtTheEndIsWrittenByTheDestructor) {
  {
    Recorder recorder(file_);
    record(recorder, 1);
    const base::Fd held(::open(file_.c_str(), O_RDWR | O_CLOEXEC));
    const auto lock = cache::RangeLock::acquire(held.get(), std::int64_t{1} << 62,
                                                cache::RangeLock::Mode::exclusive, base::Deadline::after(1s));
    record(recorder, 2);
  }
  EXPECT_EQ(rows(), (Rows{1, 2}));
}

TEST_F(RecorderTest, AForkedChildDoesNotInheritALockedMutex) {
  Recorder recorder(file_);
  record(recorder, 1);
  const base::Fd held(::open(file_.c_str(), O_RDWR | O_CLOEXEC));
  auto lock = cache::RangeLock::acquire(held.get(), std::int64_t{1} << 62, cache::RangeLock::Mode::exclusive,
                                        base::Deadline::after(1s));
  std::atomic<bool> waiting{false};
  std::thread waiter([&] {
    waiting = true;
    record(recorder, 2);  // inside its mutex until the lock's deadline
  });
  while (!waiting) std::this_thread::yield();
  std::this_thread::sleep_for(20ms);
  const pid_t pid = start_child([&] {
    record(recorder, 3);
    record(recorder, 1);
  });
  lock.reset();
  waiter.join();
  EXPECT_EQ(finish(pid), 0);
  record(recorder, 4);
  Rows got = rows();
  std::sort(got.begin(), got.end());
  EXPECT_TRUE(got == (Rows{1, 2, 4}) || got == (Rows{1, 2, 3, 4})) << ::testing::PrintToString(got);
}

TEST_F(RecorderTest, AMovedRecordIsBegunAnew) {
  Recorder recorder(file_);
  record(recorder, 1);
  ASSERT_EQ(::rename(file_.c_str(), tree_.at("old").c_str()), 0);
  record(recorder, 2);
  EXPECT_EQ(rows(), (Rows{2}));
  ASSERT_EQ(::truncate(file_.c_str(), 0), 0);
  record(recorder, 3);
  EXPECT_EQ(rows(), (Rows{3}));
}

source::MemoryTemplate from_memory(const std::string& name, const std::string& body) {
  std::string manifest = small_manifest(name);
  const std::string own = "\"" + name + ".cu\"";
  manifest.replace(manifest.find(own), own.size(), "'kernel.cu'");
  return {manifest, small_source("", body), ""};
}

TEST_F(RecorderTest, TemplatesFromMemoryAreDumpedBesideIt) {
  source::Catalog engine({});
  const auto one = engine.add(from_memory("one", "out[i] = T(N);"));
  const auto two = engine.add(from_memory("two", "out[i] = T(N + 1);"));  // of the same source name
  Recorder recorder(file_);
  recorder.record(*one, resolved(*one, 1));
  recorder.record(*two, resolved(*two, 2));
  recorder.record(*two, resolved(*two, 3));
  EXPECT_EQ(rows(), (Rows{1, 2, 3}));
  source::Catalog dumped({runtime::templates_beside(file_)});
  EXPECT_EQ(dumped.names(), (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(dumped.open("one")->kernel.read(), one->kernel.memory);
  EXPECT_EQ(dumped.open("two")->kernel.read(), two->kernel.memory);
  EXPECT_EQ(dumped.open("two")->manifest.kernel.source, "two.cu");
  EXPECT_EQ(warnings(), 0u);
}

TEST_F(RecorderTest, AnotherTemplateOfTheNameIsNotMixedIn) {
  source::Catalog first({}), second({}), again({});
  const auto old = first.add(from_memory("one", "out[i] = T(N);"));
  const auto other = second.add(from_memory("one", "out[i] = T(N + 1);"));
  {
    Recorder recorder(file_);
    recorder.record(*old, resolved(*old, 1));
  }
  {
    Recorder recorder(file_);
    recorder.record(*other, resolved(*other, 2));
    recorder.record(*other, resolved(*other, 3));
    record(recorder, 4);
  }
  EXPECT_EQ(rows(), (Rows{1, 4}));
  ASSERT_EQ(warnings(), 1u);
  EXPECT_NE(lines_[0].find("'one'"), std::string::npos) << lines_[0];
  EXPECT_EQ(source::Catalog({runtime::templates_beside(file_)}).open("one")->kernel.read(),
            old->kernel.memory);
  const auto same = again.add(from_memory("one", "out[i] = T(N);"));
  Recorder recorder(file_);
  recorder.record(*same, resolved(*same, 5));
  EXPECT_EQ(rows(), (Rows{1, 4, 5}));
}

TEST_F(RecorderTest, AReferenceIsDumpedWithItsTemplate) {
  source::MemoryTemplate in = from_memory("one", "out[i] = T(N);");
  in.manifest +=
      "[reference]\nsource = \"kernel.cu\"\ninstantiate = \"scale<{T}, {N}>\"\ngrid = [\"1\"]\nblock = "
      "[\"64\"]\n";
  in.reference = "// naive\n" + in.source;
  source::Catalog engine({});
  const auto one = engine.add(in);
  Recorder recorder(file_);
  recorder.record(*one, resolved(*one, 1));
  const auto dumped = source::Catalog({runtime::templates_beside(file_)}).open("one");
  EXPECT_EQ(dumped->reference.read(), in.reference);
  EXPECT_EQ(dumped->kernel.read(), in.source);
}

TEST_F(RecorderTest, TheServiceRecordsASealedMiss) {
  Options options = Options::hermetic();
  options.cache_dir = tree_.at("cache"), options.template_path = tree_.at("t");
  options.mode = Mode::sealed, options.record = file_;
  options.cuda_home = tree_.at("no toolkit");
  runtime::Service service(options);
  auto& scale = service.open("scale", KILN_DEVICE_NONE, "90");
  EXPECT_THROW(scale.compile(std::vector<Value>{Value(Dtype::f32), Value(3)}), Error);
  service.seal();
  EXPECT_THROW(scale.compile(std::vector<Value>{Value(Dtype::f32), Value(5)}), Error);
  EXPECT_EQ(rows(), (Rows{3, 5}));
}

using RecordedService = ServiceTest;

TEST_F(RecordedService, TemplatesFromMemoryAreWarmInAnotherStore) {
  Options engine = options();
  engine.record = tree_.at("record");
  {
    runtime::Service service(engine);
    service.add(from_memory("one", "out[i] = T(N);"));
    service.add(from_memory("two", "out[i] = T(N + 1);"));
    for (const char* name : {"one", "two"})
      EXPECT_EQ(compile(service, name, {Value(Dtype::f32), Value(3)}).outcome, Outcome::compiled);
  }
  engine.cache_dir = tree_.at("elsewhere"), engine.record = "";
  {
    Options prewarm = engine;
    prewarm.template_path += ':' + runtime::templates_beside(tree_.at("record"));
    runtime::Service service(prewarm);
    for (const auto& planned :
         source::parse_plan(base::read_file(tree_.at("record"))->bytes, tree_.at("record"))) {
      std::vector<NamedValue> named;
      for (const Parameter& p : planned.values) named.push_back({p.name, Value(p.value)});
      auto& opened = service.open(planned.template_name, KILN_DEVICE_NONE, planned.arch);
      EXPECT_EQ(opened.compile(source::positional(opened.origin().manifest, named)).outcome,
                Outcome::compiled);
    }
    service.pipeline().flush();
  }
  engine.mode = Mode::sealed;
  {
    runtime::Service service(engine);
    service.add(from_memory("one", "out[i] = T(N);"));
    service.add(from_memory("two", "out[i] = T(N + 1);"));
    for (const char* name : {"one", "two"})
      EXPECT_EQ(compile(service, name, {Value(Dtype::f32), Value(3)}).outcome, Outcome::disk);
  }
  forget(tree_.at("elsewhere"));
}

}  // namespace
}  // namespace kiln::testing
