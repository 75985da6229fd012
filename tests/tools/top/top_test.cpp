// kiln top: its output about real processes.
#include "support/time_limit.hpp"
#include "tools/top/fixture.hpp"

#include <sched.h>
#include <sys/prctl.h>

#include <filesystem>
#include <set>

#include "cache/flight/compile_slots.hpp"
#include "support/places.hpp"
#include "tests/support/other_user.hpp"

namespace kiln::test {
namespace {

TEST_F(Top, ACacheThatIsNotThereHasNobodyAndIsNotMade) {
  const Finished r = kiln({"top"}, {{"KILN_CACHE_DIR", path("nowhere")}});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("no process compiles, waits or holds"), std::string::npos) << r.out;
  EXPECT_FALSE(exists(path("nowhere")));
  const auto json = look();
  EXPECT_EQ(json["schema"], "kiln.top/1");
  EXPECT_EQ(json["directory"], cache());
  EXPECT_TRUE(json["processes"].empty() && json["finished"].empty() && json["unseen"].empty());
  EXPECT_EQ(json["slots"]["used"], 0);
}

TEST_F(Top, ACompileIsShownWithItsProcess) {
  const auto holder = compiling(1);
  const auto row = rows("compiling", 1)[0];
  EXPECT_EQ(row["pid"], holder->pid);
  EXPECT_EQ(row["subject"], "kernel 1");
  EXPECT_EQ(row["key"], key_of(1).hex());
  EXPECT_EQ(row["same_namespace"], true);
  EXPECT_LT(row["seconds"], at_most(60));
  const std::string text = kiln({"top"}).out;
  EXPECT_NE(text.find("1 compiling\n"), std::string::npos) << text;
  EXPECT_NE(text.find(std::to_string(holder->pid) + " ("), std::string::npos) << text;
  EXPECT_EQ(text.find('\033'), std::string::npos);
}

TEST_F(Top, AWaiterOfAnotherProcessIsShownUntilItHasIt) {
  auto holder = compiling(1);
  const pid_t waiter = ::fork();
  if (waiter == 0) {
    const auto taken = flights()->take(key_of(1), base::Deadline::never(), nullptr, {}, "kernel 1");
    taken.flight->compiling("kernel 1");
    for (;;) ::pause();
  }
  const auto row = rows("waiting", 1)[0];
  EXPECT_EQ(row["pid"], waiter);
  EXPECT_EQ(row["subject"], "kernel 1");
  EXPECT_GE(row["seconds"], 0.02);
  holder->end();
  EXPECT_EQ(rows("compiling", 1)[0]["pid"], waiter);
  rows("waiting", 0);
  ::kill(waiter, SIGKILL), ::waitpid(waiter, nullptr, 0);
}

TEST_F(Top, AKilledHolderIsLeftBehindAndAStoppedOneIsStopped) {
  const auto killed = compiling(1), stopped = compiling(2);
  const pid_t pid = killed->pid;
  ::kill(stopped->pid, SIGSTOP);
  EXPECT_EQ(rows("stopped", 1)[0]["pid"], stopped->pid);
  killed->end();
  EXPECT_EQ(rows("left_behind", 1)[0]["pid"], pid);
  rows("compiling", 0);
  EXPECT_NE(kiln({"top"}).out.find("left behind"), std::string::npos);
}

TEST_F(Top, OneWhoseTurnHasNotComeIsQueuedAndNotCompiling) {
  Child child([this](const auto& stay) {
    const auto file = flights();
    const auto one = file->take(key_of(1), base::Deadline::never()),
               two = file->take(key_of(2), base::Deadline::never());
    one.flight->compiling("kernel 1"), two.flight->compiling("kernel 2");
    const auto shown = file->show_waiting(cache::WaitFor::turn, "kernel 2");
    const auto without_a_flight = file->show_waiting(cache::WaitFor::turn, "kernel 3");
    stay();
  });
  EXPECT_EQ(rows("compiling", 1)[0]["subject"], "kernel 1");
  const auto queued = rows("queued", 2);
  EXPECT_EQ(std::set<std::string>({queued[0]["subject"], queued[1]["subject"]}),
            (std::set<std::string>{"kernel 2", "kernel 3"}));
}

TEST_F(Top, SlotsInUseAreCounted) {
  const auto file = flights();
  const auto one = cache::SlotRequest(file, cache::SlotUse::caller, 1).try_take();
  const auto two = cache::SlotRequest(file, cache::SlotUse::caller, 1).try_take();
  cache::SlotRequest third(flights(), cache::SlotUse::caller, 1);
  EXPECT_FALSE(third.try_take());
  const Finished r = kiln({"top", "--json"}, {{"KILN_JOBS", "999"}});
  EXPECT_EQ(r.json()["slots"]["used"], 2);
  EXPECT_EQ(r.json()["slots"]["regular"], 999);
  EXPECT_EQ(r.json()["slots"]["caller_waits"], true);
  EXPECT_NE(kiln({"top"}).out.find("a caller waits for one"), std::string::npos);
}

TEST_F(Top, HoldersWhoSayNothingAreNamed) {
  const auto taken = flights()->take(key_of(1), base::Deadline::never());
  HeldGate gate(data_file());
  const std::string self = "pid " + std::to_string(::getpid()) + " (";
  const auto holding = rows("holding", 1)[0], writing = rows("writing", 1)[0];
  EXPECT_EQ(holding["process"].get<std::string>().substr(0, self.size()), self);
  EXPECT_EQ(writing["process"].get<std::string>().substr(0, self.size()), self);
  EXPECT_NE(writing["subject"].get<std::string>().find(data_file()), std::string::npos);
  EXPECT_TRUE(holding["seconds"].is_null());
  const auto unseen = look()["unseen"];
  ASSERT_EQ(unseen.size(), 1u) << unseen;
  EXPECT_NE(unseen[0].get<std::string>().find(".board: it has no entry"), std::string::npos) << unseen;
}

TEST_F(Top, WhatEndedSaysHow) {
  const auto file = flights();
  for (std::uint32_t number = 1; number <= 3; ++number) {
    const auto taken = file->take(key_of(number), base::Deadline::never());
    taken.flight->compiling("kernel " + std::to_string(number));
    if (number == 1) taken.flight->published();
    if (number == 2) taken.flight->failed("log");
  }
  const auto json = look();
  std::map<std::string, std::string> ends;
  for (const auto& flight : json["finished"]) ends[flight["subject"]] = flight["end"];
  EXPECT_EQ(ends, (std::map<std::string, std::string>{
                      {"kernel 1", "published"}, {"kernel 2", "failed"}, {"kernel 3", "unpublished"}}));
  EXPECT_EQ(json["compiles_per_minute"], 3);
}

TEST_F(Top, AProcessOfAnotherPidNamespaceIsNamedWithItsHost) {
  KILN_NEEDS_ROOT();
  Child child([this](const auto& stay) {
    if (::unshare(CLONE_NEWPID) != 0) return stay();
    if (::fork() != 0) ::pause();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto taken = flights()->take(key_of(1), base::Deadline::never());
    taken.flight->compiling("kernel 1");
    stay();
  });
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
  const auto row = rows("compiling", 1)[0];
  EXPECT_EQ(row["pid"], 1);
  EXPECT_EQ(row["same_namespace"], false);
  EXPECT_EQ(row["process"], host + std::string("/1(ns)"));
}

TEST_F(Top, AnotherUserIsToldWhatHeCannotSee) {
  KILN_NEEDS_ROOT();
  const auto holder = compiling(1);
  std::filesystem::copy_file(places::kCommand, path("kiln"));  // the build may lie where only root can read
  for (const std::string& directory : {path(""), cache(), cache() + "/v1"}) ::chmod(directory.c_str(), 0755);
  ::chmod(data_file().c_str(), 0644);
  const std::string out = kiln::testing::as_user(kiln::testing::kUser, [&] {
    std::string text;
    std::FILE* shell = ::popen(
        ("cd / && env -i KILN_CACHE_DIR=" + cache() + ' ' + path("kiln") + " top; echo status $?").c_str(),
        "r");
    for (int c; shell && (c = std::fgetc(shell)) != EOF;) text += static_cast<char>(c);
    if (shell) ::pclose(shell);
    return text;
  });
  EXPECT_NE(out.find("not seen: /dev/shm/kiln-0-"), std::string::npos) << out;
  EXPECT_NE(out.find("Permission denied"), std::string::npos) << out;
  EXPECT_NE(out.find("status 0"), std::string::npos) << out;
}

TEST_F(Top, AnIntervalIsForATerminal) {
  EXPECT_EQ(kiln({"top", "--interval", "1"}).status, 2);
  EXPECT_EQ(kiln({"top", "--interval", "1", "--json"}).status, 2);
  EXPECT_EQ(kiln({"top", "--interval", "0"}).status, 2);
}

TEST_F(Top, AClosedPipeEndsItQuietly) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const std::string errors = path("errors");
  const Environment settings = environment();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGPIPE, SIG_IGN);  // some parents leave it ignored
    ::dup2(ends[1], 1);
    ::setenv("KILN_CACHE_DIR", cache().c_str(), 1);
    if (!::freopen(errors.c_str(), "w", stderr)) ::_exit(126);
    ::execl(places::kCommand, places::kCommand, "top", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(ends[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) << status;
  EXPECT_EQ(base::read_file(errors)->bytes, "");
}

class TopCompiles : public KilnCompiler {};

TEST_F(TopCompiles, ARealCompileAndItsWaiterInAnotherProcess) {
  write("worker", "#!/bin/sh\nexec sleep 20\n");  // a worker that never answers
  ::chmod(path("worker").c_str(), 0700);
  const Environment slow{{"KILN_WORKER", path("worker")}};
  const Arguments ask{"compile", "scale", "N=1", "--arch", "sm_90a"};
  const auto first = start(ask, slow), second = start(ask, slow);
  std::map<std::string, nlohmann::json> rows;
  const auto look = [&] {
    rows.clear();
    const Finished seen = kiln({"top", "--json"});
    const nlohmann::json json = seen.json();
    for (const auto& row : json["processes"]) rows[row["state"]] = row;
    return rows.contains("compiling") && rows.contains("waiting");
  };
  EXPECT_TRUE(base::poll_until(base::Deadline::after(std::chrono::seconds(60)), look));
  EXPECT_EQ(rows["compiling"]["subject"], "scale N=1 FLAG=false for sm_90a");
  EXPECT_EQ(rows["waiting"]["subject"], rows["compiling"]["subject"]);
  EXPECT_EQ(rows["waiting"]["key"], rows["compiling"]["key"]);
  EXPECT_EQ(std::set<int>({rows["compiling"]["pid"], rows["waiting"]["pid"]}),
            (std::set<int>{first->pid(), second->pid()}));
  EXPECT_EQ(kiln({"top", "--json"}).json()["slots"]["used"], 1);
  first->send(SIGKILL), second->send(SIGKILL);
}

}  // namespace
}  // namespace kiln::test
