#include "rules.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fault.hpp"

namespace kiln::fault {
namespace {

constexpr const char* kCalls[] = {"pwrite", "pwritev",   "write",  "writev", "fdatasync", "fsync",
                                  "msync",  "ftruncate", "rename", "link",   "unlink",    "mkdir",
                                  "create", "lock",      "unlock", "send",   "mmap",      "pread"};
constexpr std::uint32_t bit(Call call) { return 1u << static_cast<std::uint32_t>(call); }
constexpr std::uint32_t kWrites =
    bit(Call::pwrite) | bit(Call::pwritev) | bit(Call::write) | bit(Call::writev);

struct Rule {
  std::uint32_t calls = 0;
  enum class Descriptor { any, plain, synced } descriptor = Descriptor::any;
  char text[256] = {};
  std::uint64_t from = 1;
  bool all_later = false;
  Verdict verdict;
  std::atomic<std::uint64_t> seen{0};
};

constexpr int kMaxRules = 8;
Rule g_rules[kMaxRules];
std::atomic<int> g_count{0};
std::atomic<std::uint64_t> g_fired{0};

[[noreturn]] void refuse(const char* rule) noexcept {
  std::fprintf(stderr, "kiln_fault: cannot understand the rule '%s'\n", rule);
  std::abort();
}

bool starts(const char* text, const char* prefix) noexcept {
  return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

int errno_named(const char* name) noexcept {
  constexpr struct {
    const char* name;
    int value;
  } known[] = {{"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EIO", EIO},     {"ENOMEM", ENOMEM},
               {"EFBIG", EFBIG},   {"EACCES", EACCES}, {"EROFS", EROFS}, {"EMFILE", EMFILE}};
  for (const auto& each : known)
    if (std::strcmp(name, each.name) == 0) return each.value;
  return 0;
}

Verdict action_named(const char* name) noexcept {
  if (const int error = errno_named(name)) return {Action::fail, error};
  if (starts(name, "after=")) return {Action::fail_after, errno_named(name + 6)};
  if (starts(name, "delay=")) return {Action::delay, std::atoi(name + 6)};
  constexpr struct {
    const char* name;
    Action action;
  } known[] = {{"short", Action::half},
               {"kill", Action::kill},
               {"kill-after", Action::kill_after},
               {"kill-half", Action::kill_half},
               {"stop", Action::stop}};
  for (const auto& each : known)
    if (std::strcmp(name, each.name) == 0) return {each.action, 1};
  return {};
}

void parse(Rule& rule, char* text) noexcept {
  char whole[512];
  std::snprintf(whole, sizeof whole, "%s", text);
  char* when = std::strchr(text, ':');
  char* action = when ? std::strchr(when + 1, ':') : nullptr;
  if (!action) refuse(whole);
  *when++ = *action++ = '\0';
  rule.calls = 0, rule.descriptor = Rule::Descriptor::any, rule.text[0] = '\0', rule.seen = 0;
  if (char* at = std::strchr(text, '@')) {
    *at = '\0';
    std::snprintf(rule.text, sizeof rule.text, "%s", at + 1);
  }
  if (std::strcmp(text, "any") == 0) rule.calls = ~(bit(Call::mmap) | bit(Call::pread));
  if (std::strcmp(text, "sync") == 0) rule.calls = bit(Call::fdatasync) | bit(Call::fsync) | bit(Call::msync);
  if (std::strcmp(text, "data") == 0) rule.calls = kWrites, rule.descriptor = Rule::Descriptor::plain;
  if (std::strcmp(text, "meta") == 0) rule.calls = kWrites, rule.descriptor = Rule::Descriptor::synced;
  for (std::size_t i = 0; i < sizeof kCalls / sizeof *kCalls; ++i)
    if (std::strcmp(text, kCalls[i]) == 0) rule.calls = 1u << i;
  char* end = nullptr;
  rule.from = std::strtoull(when, &end, 10);
  rule.all_later = *end == '+';
  rule.verdict = action_named(action);
  if (rule.calls == 0 || rule.from == 0 || rule.verdict.value == 0) refuse(whole);
}

/// The rule applies to this call, and its count is reached. Counts the call.
bool due(Rule& rule, Call call, int fd, const char* path) noexcept {
  if ((rule.calls & bit(call)) == 0) return false;
  if (rule.descriptor != Rule::Descriptor::any &&
      writes_through(fd) != (rule.descriptor == Rule::Descriptor::synced))
    return false;
  if (rule.text[0]) {
    char of_fd[4096];
    if (!path) {
      path_of(fd, of_fd);
      path = of_fd;
    }
    if (!std::strstr(path, rule.text)) return false;
  }
  const std::uint64_t number = ++rule.seen;
  return rule.all_later ? number >= rule.from : number == rule.from;
}

void sleep_ms(int ms) noexcept {
  timespec left{ms / 1000, ms % 1000 * 1'000'000L};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

__attribute__((constructor)) void arm_from_environment() { kiln_fault_arm(std::getenv("FAULT_RULES")); }

}  // namespace

void die() noexcept {
  ::syscall(SYS_kill, ::getpid(), SIGKILL);
  ::syscall(SYS_exit_group, 128 + SIGKILL);  // the first process of a PID namespace cannot kill itself
  __builtin_unreachable();
}

bool writes_through(int fd) noexcept { return (::syscall(SYS_fcntl, fd, F_GETFL) & O_DSYNC) != 0; }

void path_of(int fd, char (&path)[4096]) noexcept {
  char link[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = ::readlink(link, path, sizeof path - 1);
  path[size > 0 ? size : 0] = '\0';
}

Verdict judge(Call call, int fd, const char* path) noexcept {
  const int count = g_count.load(std::memory_order_acquire);
  if (count == 0) return {};
  const int saved = errno;
  Verdict out;
  for (int i = 0; i < count; ++i) {
    if (!due(g_rules[i], call, fd, path) || out.action != Action::none) continue;
    out = g_rules[i].verdict;
    ++g_fired;
    if (out.action == Action::kill) die();
    if (out.action == Action::stop) ::syscall(SYS_kill, ::getpid(), SIGSTOP);
    if (out.action == Action::delay) sleep_ms(out.value);
  }
  errno = saved;
  return out;
}

}  // namespace kiln::fault

void kiln_fault_arm(const char* rules) {
  using namespace kiln::fault;
  g_count = 0, g_fired = 0;
  char text[4096];
  std::snprintf(text, sizeof text, "%s", rules ? rules : "");
  int count = 0;
  char* rest = nullptr;
  for (char* rule = strtok_r(text, ";", &rest); rule; rule = strtok_r(nullptr, ";", &rest)) {
    if (count == kMaxRules) refuse(rule);
    parse(g_rules[count++], rule);
  }
  g_count.store(count, std::memory_order_release);
}

std::uint64_t kiln_fault_seen() { return kiln::fault::g_rules[0].seen; }
std::uint64_t kiln_fault_fired() { return kiln::fault::g_fired; }
